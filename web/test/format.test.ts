// Numbers and foreign text as people read them.

import { describe, expect, test } from "vitest";

import { formatBytes, formatDuration, formatPlural, formatWhen, shellWord, visible } from "../src/format";

describe("durations have three digits and never a unit too small", () => {
  test.each([
    [0, "0 ns"],
    [999, "999 ns"],
    [1_000, "1.00 µs"],
    [12_345, "12.3 µs"],
    [999_499, "999 µs"],
    [999_500, "1.00 ms"],
    [999_500_000, "1.00 s"],
    [59_000_000_000, "59.0 s"],
    [123_000_000_000, "2 min 03 s"],
    [3_840_000_000_000, "1 h 04 min"],
  ])("%d ns is %s", (ns, words) => expect(formatDuration(ns)).toBe(words));
});

test.each([
  [999, "999 B"],
  [1_000, "1.00 kB"],
  [1_234_567, "1.23 MB"],
  [5e15, "5.00 PB"],
  [5e18, "5000 PB"],
])("%d bytes are %s", (bytes, words) => expect(formatBytes(bytes)).toBe(words));

test("plurals are those that are given, with thousands apart", () => {
  expect(formatPlural(1, "event")).toBe("1 event");
  expect(formatPlural(2_000, "event")).toBe("2,000 events");
  expect(formatPlural(0, "stretch", "stretches")).toBe("0 stretches");
});

test("a moment that is none says so", () => expect(formatWhen(NaN)).toBe("at an unknown time"));

test("characters that reorder, hide or break a line are spelled out, and long text is cut", () => {
  expect(visible("a\u202eb\u200bc\nd\u0007")).toBe("a\\u{202e}b\\u{200b}c\\u{a}d\\u{7}");
  expect(visible("日本 é")).toBe("日本 é");
  expect(visible("x".repeat(500))).toBe(`${"x".repeat(400)}…`);
});

test.each([
  ["web@3", "web@3"],
  ["/data/a b", "'/data/a b'"],
  ["it's", "'it'\\''s'"],
  ["-rf", "'-rf'"],
  ["", "''"],
  ["$(reboot)", "'$(reboot)'"],
])("%s is one word of a shell", (text, word) => expect(shellWord(text)).toBe(word));
