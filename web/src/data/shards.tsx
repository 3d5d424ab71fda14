// The shards of a version, a page at a time.

import { useState } from "preact/hooks";

import { question } from "../ask";
import { formatBytes, formatCount, formatPlural, visible } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import { addressRoute } from "../route";
import type { ShardPage, VersionDetail } from "../wire/types";

/** Shards of one answer, which is what the server gives at most. */
const PAGE = 200;

export function ShardTable(props: { version: VersionDetail }) {
  const { version } = props;
  const [start, setStart] = useState(0);
  const { loaded, again } = useLoaded(question("shards", { at: version.address, start }));
  return <Outcome of={loaded} again={again} show={(list) => <Shards version={version} list={list} setStart={setStart} />} />;
}

function Shards(props: { version: VersionDetail; list: ShardPage; setStart: (start: number) => void }) {
  const { version, list, setStart } = props;
  const end = list.start + list.shards.length;
  return (
    <>
      <div class="wide">
        <table class="list">
          <thead>
            <tr>
              <th>Shard</th>
              <th>First row</th>
              <th>Rows</th>
              <th>Size</th>
              <th class="left">Read through</th>
            </tr>
          </thead>
          <tbody>
            {list.shards.map((shard) => (
              <tr key={shard.name}>
                <th class="mono">{visible(shard.name)}</th>
                <td>
                  <a href={addressRoute(`${version.address}/row/${shard.first}`)} data-row>
                    {formatCount(shard.first)}
                  </a>
                </td>
                <td>{formatCount(shard.rows)}</td>
                <td>{formatBytes(shard.bytes)}</td>
                <td class="left soft">{shard.copied ? "a copy that rows can be reached in" : "the file itself"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="foot">
        <span class="soft">
          Shards {formatCount(list.start + 1)} to {formatCount(end)} of {formatPlural(list.of, "shard")}.
        </span>
        {list.start > 0 && (
          <button type="button" onClick={() => setStart(Math.max(0, list.start - PAGE))}>
            Earlier
          </button>
        )}
        {end < list.of && (
          <button type="button" onClick={() => setStart(end)}>
            Further
          </button>
        )}
      </div>
    </>
  );
}
