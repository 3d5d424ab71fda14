// One version: its rows first, with the spread of every column above them; shards and lineage beside.

import { question } from "../ask";
import { splitRow } from "../data/address";
import { RowTable } from "../data/rowtable";
import { formatBytes, formatCount, formatPlural, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { LineageView } from "../data/lineage";
import { RowPanel } from "../data/rowpanel";
import { ShardTable } from "../data/shards";
import { Outcome } from "../part/state";
import { formatRoute, go, replaceAddress, replaceQuery } from "../route";
import type { VersionDetail } from "../wire/types";

type Query = ReadonlyMap<string, string>;
/** Views of a version, in the order of their keys. */
const TABS = ["rows", "schema", "shards", "lineage"] as const;
type Tab = (typeof TABS)[number];

export function VersionPage(props: { address: string; query: Query }) {
  const [at, row] = splitRow(props.address);
  const { loaded, again } = useLoaded(question("version", { at }));
  useKeys("This page", [
    { keys: "r", says: "Load it again", run: again },
    { keys: "u", says: "Back to all versions", run: () => go(["d", ...(at.split("@")[0] ?? "").split("/")]) },
    ...TABS.map((tab, number) => ({ keys: String(number + 1), says: `Show ${tab}`, run: () => showTab(tab) })),
  ]);
  return <Outcome of={loaded} again={again} show={(version) => <Contents version={version} row={row} query={props.query} />} />;
}

function showTab(tab: Tab): void {
  replaceQuery(new Map([["tab", tab === "rows" ? null : tab]]));
}

function Contents(props: { version: VersionDetail; row: number | null; query: Query }) {
  const { version, row, query } = props;
  const tab = TABS.find((one) => one === query.get("tab")) ?? "rows";
  return (
    <div class={`version${tab === "rows" ? " filling" : ""}`}>
      <Head version={version} tab={tab} />
      {tab === "rows" && (
        <div class="beside">
          <RowTable key={version.address} version={version} chosen={row} where={query.get("where") ?? ""} choose={(number) => choose(version, number)} />
          {row !== null && <RowPanel version={version} row={row} choose={(number) => choose(version, number)} />}
        </div>
      )}
      {tab === "schema" && <Schema version={version} />}
      {tab === "shards" && <ShardTable version={version} />}
      {tab === "lineage" && <LineageView address={version.address} />}
    </div>
  );
}

function choose(version: VersionDetail, row: number | null): void {
  replaceAddress(row === null ? version.address : `${version.address}/row/${row}`);
}

function Head(props: { version: VersionDetail; tab: Tab }) {
  const { version, tab } = props;
  const facts = [
    formatPlural(version.rows, "row"),
    formatBytes(version.bytes),
    version.format,
    formatPlural(version.shards, "shard"),
    version.digest.slice(0, 15),
  ];
  return (
    <header class="head">
      <div class="head-line">
        <h1>
          <a href={formatRoute(["d", ...version.name.split("/")])}>{visible(version.name)}</a>
          <span class="soft">@</span>
          {version.number}
          {version.tags.map((tag) => (
            <span key={tag} class="tag">
              {visible(tag)}
            </span>
          ))}
        </h1>
        <p class="facts">
          {facts.map((fact) => (
            <span key={fact}>{fact}</span>
          ))}
        </p>
        <Command text={version.command} />
      </div>
      {version.note !== "" && <p class="soft">{visible(version.note)}</p>}
      {version.skipped > 0 && <p class="cut">{formatPlural(version.skipped, "bad row")} of the files were left out when it was registered.</p>}
      <nav class="tabs" aria-label="Views of the version">
        {TABS.map((one, number) => (
          <button key={one} type="button" class="tab" aria-pressed={one === tab} onClick={() => showTab(one)} title={`${one} (${number + 1})`}>
            {one}
          </button>
        ))}
      </nav>
    </header>
  );
}

function Schema(props: { version: VersionDetail }) {
  const { version } = props;
  const places: [string, string][] = [
    ["at", version.roots.join(", ")],
    ["digest", version.digest],
    ["created", version.created],
    ["owner", version.owner],
    ["licence", version.licence],
  ];
  return (
    <>
      <dl class="fields">
        {places.map(
          ([name, value]) =>
            value !== "" && (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{visible(value)}</dd>
              </div>
            ),
        )}
      </dl>
      <div class="wide">
        <table class="list narrow">
          <thead>
            <tr>
              <th>Field</th>
              <th class="left">Kind</th>
              <th class="left" />
            </tr>
          </thead>
          <tbody>
            {version.schema.map((field) => (
              <tr key={field.name}>
                <th class="mono">{visible(field.name)}</th>
                <td class="left">{field.kind}</td>
                <td class="left soft">{field.optional ? "optional" : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {version.fields_left_out > 0 && <p class="cut">{formatCount(version.fields_left_out)} more fields are not listed.</p>}
    </>
  );
}
