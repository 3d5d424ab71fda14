// Routes and addresses: what stands behind `#`, read and written.

import { expect, test } from "vitest";

import { formatPlace, isStream, parsePlace } from "../src/batch/place";
import { splitRow } from "../src/data/address";
import { addressRoute, formatRoute, parseRoute } from "../src/route";

test.each(["web@3/row/17", "conf/my recipe.toml#step=3,lane=1/8,row=5,token=120", "run:runs/exp?1#step=0", "日本.toml#step=1", "100%.toml#step=2"])(
  "the route of %s leads back to it",
  (address) => {
    const query = new Map([["by", "loss & more"]]);
    const route = parseRoute(addressRoute(address, query));

    expect(route.address).toBe(address);
    expect(route.query).toEqual(query);
  },
);

test("an address in a URL reads as on the command line", () => {
  expect(addressRoute("web@3/row/17")).toBe("#/a/web@3/row/17");
  expect(addressRoute("r.toml#step=3,lane=1/8")).toBe("#/a/r.toml%23step=3,lane=1/8");
});

test("segments of a page's path are decoded one by one, and a lone % is taken as it stands", () => {
  expect(parseRoute(formatRoute(["events", "a/b c.pev"])).path).toEqual(["events", "a/b c.pev"]);
  expect(parseRoute("#/events/100%.pev?kind=x").path).toEqual(["events", "100%.pev"]);
  expect(parseRoute("").path).toEqual([""]);
  expect(parseRoute("#/events").address).toBeNull();
});

test("a place in a batch is taken apart and put together again", () => {
  const place = parsePlace("r.toml#step=41207,lane=3/8,row=5,token=120");

  expect(place).toEqual({ stream: "r.toml", step: 41207, lane: "3/8", row: 5, token: 120 });
  expect(formatPlace(place)).toBe("r.toml#step=41207,lane=3/8,row=5,token=120");
  expect(formatPlace({ ...place, step: null, lane: null, row: null, token: null })).toBe("r.toml");
  expect(parsePlace("r.toml#step=-1,row=x,token=99999999999999999")).toMatchObject({ step: null, row: null, token: null });
});

test.each([
  ["run:runs/a", true],
  ["r.toml", true],
  ["R.TOML", true],
  ["r.json#step=1", true],
  ["web@3", false],
  ["data/x.json@latest", false],
  ["web/row/3", false],
])("%s is of a stream of batches: %s", (address, stream) => expect(isStream(address)).toBe(stream));

test("the row of a version's address is split off", () => {
  expect(splitRow("web@3/row/17")).toEqual(["web@3", 17]);
  expect(splitRow("web@3")).toEqual(["web@3", null]);
  expect(splitRow("a/row/b@3/row/x")).toEqual(["a/row/b@3/row/x", null]);
});
