// All versions of a dataset, newest first, with a way to compare two of them.

import { question } from "../ask";
import { formatBytes, formatCount, formatPlural, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { Outcome } from "../part/state";
import { addressRoute, formatRoute, go } from "../route";
import type { VersionList, VersionSummary } from "../wire/types";

export function VersionsPage(props: { name: string }) {
  const { loaded, again } = useLoaded(question("versions", { name: props.name }));
  useKeys("This page", [
    { keys: "r", says: "Load the list again", run: again },
    { keys: "u", says: "Back to all datasets", run: () => go([""]) },
  ]);
  return (
    <>
      <p class="crumb">
        <a href={formatRoute([""])}>Data</a>
      </p>
      <h1>{visible(props.name)}</h1>
      <Outcome of={loaded} again={again} show={(list) => <Versions list={list} />} />
    </>
  );
}

function Versions(props: { list: VersionList }) {
  const { versions, tags, left_out, command } = props.list;
  return (
    <>
      <p class="lead">
        {formatPlural(versions.length + left_out, "version")}, newest first.
        {left_out > 0 && ` The oldest ${formatCount(left_out)} are not listed.`}
      </p>
      <div class="wide">
        <table class="list">
          <thead>
            <tr>
              <th>Version</th>
              <th class="left">Created</th>
              <th>Rows</th>
              <th>Size</th>
              <th>Shards</th>
              <th class="left">Digest</th>
              <th class="left">Note</th>
              <th />
            </tr>
          </thead>
          <tbody>
            {versions.map((version, at) => (
              <VersionLine key={version.number} version={version} older={versions[at + 1] ?? null} tags={tags} />
            ))}
          </tbody>
        </table>
      </div>
      <div class="foot">
        <Command text={command} />
      </div>
    </>
  );
}

function VersionLine(props: { version: VersionSummary; older: VersionSummary | null; tags: VersionList["tags"] }) {
  const { version, older, tags } = props;
  const both = older === null ? null : new Map([["a", older.address], ["b", version.address]]);
  return (
    <tr>
      <th>
        <a href={addressRoute(version.address)} data-row class="strong">
          {version.address}
        </a>
        {Object.entries(tags).map(([tag, number]) => number === version.number && <span class="tag">{visible(tag)}</span>)}
      </th>
      <td class="left soft">{visible(version.created.replace("T", " ").replace("+00:00", ""))}</td>
      <td>{formatCount(version.rows)}</td>
      <td>{formatBytes(version.bytes)}</td>
      <td>{formatCount(version.shards)}</td>
      <td class="left soft mono">{version.digest.slice(0, 15)}</td>
      <td class="left soft note">{visible(version.note)}</td>
      <td>{both !== null && <a href={formatRoute(["diff"], both)}>compare with @{older?.number}</a>}</td>
    </tr>
  );
}
