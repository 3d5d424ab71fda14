// One host: where it is, and its ranks as the host itself measures them.

import { useEffect } from "preact/hooks";

import { question } from "../ask";
import { formatBytes, formatCount, visible } from "../format";
import { useLoaded } from "../load";
import { Outcome } from "../part/state";
import type { HostDetail } from "../wire/types";
import { hostWords, type Board } from "./board";

/** Between two questions: a host starts a process to measure its ranks. */
const PAUSE_MS = 3_000;

export function Detail(props: { board: Board; place: number; moment: number | null; close: () => void }) {
  const { board, place } = props;
  const { loaded, again } = useLoaded(question("hosts/host", { job: board.job, place, moment: props.moment }), { keepStale: true });
  useEffect(() => {
    if (board.head.length_s !== null || loaded.phase !== "ready") return undefined;
    const timer = setTimeout(again, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [loaded]);
  return (
    <aside class="host-detail" aria-label={`Host ${visible(board.names[place] ?? "")}`}>
      <div class="section-head">
        <h2>{visible(board.names[place] ?? "")}</h2>
        <button type="button" class="quiet" onClick={props.close} title="Close (Esc)">
          Close
        </button>
      </div>
      <p class="number">{visible(hostWords(board, place))}</p>
      <Outcome of={loaded} again={again} show={(host) => <Ranks host={host} />} />
    </aside>
  );
}

function Ranks(props: { host: HostDetail }) {
  const { host } = props;
  return (
    <>
      <p class="small soft number">
        {[host.address, host.ranks === "" ? "no ranks" : `ranks ${host.ranks}`].filter((word) => word !== "").map(visible).join(" · ")}
      </p>
      {host.trouble !== "" && <p class="fail">{visible(host.trouble)}</p>}
      {host.problem !== "" && <p class="soft">{visible(host.problem)}</p>}
      {host.rows.length > 0 && (
        <div class="wide">
          <table class="list number">
            <thead>
              <tr>
                <th class="left">Worker</th>
                <th class="left">State</th>
                <th>Step</th>
                <th class="left">Phase</th>
                <th>CPU %</th>
                <th>Memory</th>
              </tr>
            </thead>
            <tbody>
              {host.rows.map((row) => (
                <tr key={row.worker}>
                  <th class="left">{visible(row.worker)}</th>
                  <td class="left">{visible(row.state)}</td>
                  <td>{row.step === null ? "–" : formatCount(row.step)}</td>
                  <td class="left">{row.phase === null ? "–" : visible(row.phase)}</td>
                  <td>{row.cpu_percent === null ? "–" : Math.round(row.cpu_percent)}</td>
                  <td>{row.rss_bytes === null ? "–" : formatBytes(row.rss_bytes)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}
