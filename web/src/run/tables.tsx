// What happened, as tables: incidents by cost, checkpoints by stall, stalls with their stacks, and the run's own recordings.

import type { ComponentChildren } from "preact";

import { formatBytes, formatCount, formatDuration, formatWhen, visible } from "../format";
import { addressRoute, formatRoute } from "../route";
import type { RunCheckpoint, RunIncident, RunOverview, RunStall } from "../wire/types";
import { runName, stepAddress } from "./address";

/** Lines of a table before the rest is asked for. */
const SHOWN = 8;
/** Accounts of an incident that are named. */
const ACCOUNTS_SHOWN = 3;

export function Happenings(props: { run: RunOverview; all: boolean; showAll: () => void }) {
  const { run, all } = props;
  const { incidents, checkpoints, checkpoints_left_out, skips } = run.marks;
  const dearest = [...incidents].sort((one, other) => other.device_ns - one.device_ns);
  const newest = [...checkpoints].reverse();
  const cut = <T,>(list: readonly T[]) => (all ? list : list.slice(0, SHOWN));
  const hidden = [incidents, checkpoints, run.stalls].some((list) => list.length > SHOWN);
  return (
    <>
      <Listing title="Incidents" count={incidents.length} empty="None: no life died, and training never went back.">
        <thead>
          <tr>
            <th>What</th>
            <th>Cost</th>
            <th>Steps again</th>
            <th class="left">Most of it</th>
            <th class="left">Cause</th>
          </tr>
        </thead>
        <tbody>{cut(dearest).map((incident, number) => <Incident key={number} incident={incident} />)}</tbody>
      </Listing>
      <Listing title="Longest steps" count={run.stalls.length} empty="None: no step took twice the usual time.">
        <thead>
          <tr>
            <th>Step</th>
            <th>Rank</th>
            <th>Took</th>
            <th>Usual</th>
            <th class="left">Longer in</th>
            <th class="left">Where its time went, by stacks</th>
          </tr>
        </thead>
        <tbody>{cut(run.stalls).map((stall) => <Stall key={`${stall.rank} ${stall.step}`} stall={stall} run={run.address} />)}</tbody>
      </Listing>
      {skips.length > 0 && (
        <Listing title="Steps left out" count={skips.length} empty="">
          <thead>
            <tr>
              <th>Steps</th>
              <th class="left">Why</th>
            </tr>
          </thead>
          <tbody>
            {cut(skips).map((skip, number) => (
              <tr key={number}>
                <th>{skip.end - skip.first === 1 ? formatCount(skip.first) : `${formatCount(skip.first)} to ${formatCount(skip.end - 1)}`}</th>
                <td class="left">{visible(skip.reason)}</td>
              </tr>
            ))}
          </tbody>
        </Listing>
      )}
      {hidden && !all && (
        <button type="button" onClick={props.showAll}>
          Show all lines
        </button>
      )}
      <div class="pair">
        <Listing title="Checkpoints" count={checkpoints.length + checkpoints_left_out} empty="None yet.">
          <thead>
            <tr>
              <th>Before step</th>
              <th>Stall</th>
              <th>On disk after</th>
              <th>Size</th>
              <th>New</th>
            </tr>
          </thead>
          <tbody>{cut(newest).map((checkpoint, number) => <Checkpoint key={number} checkpoint={checkpoint} run={run.address} />)}</tbody>
        </Listing>
        <Recordings run={run} />
      </div>
    </>
  );
}

function Listing(props: { title: string; count: number; empty: string; children: ComponentChildren }) {
  return (
    <section class="listing" aria-label={props.title}>
      <h2>
        {props.title} {props.count > 0 && <span class="count">{formatCount(props.count)}</span>}
      </h2>
      {props.count === 0 ? (
        <p class="soft small">{props.empty}</p>
      ) : (
        <div class="wide">
          <table class="list">{props.children}</table>
        </div>
      )}
    </section>
  );
}

function Incident(props: { incident: RunIncident }) {
  const { incident } = props;
  const parts = Object.entries(incident.accounts).sort((one, other) => other[1] - one[1]);
  return (
    <tr data-incident={String(incident.device_ns)}>
      <th>
        {visible(incident.kind)} of life {incident.life}
      </th>
      <td>{formatDuration(incident.device_ns)}</td>
      <td>{formatCount(incident.lost_steps)}</td>
      <td class="left soft">
        {parts
          .slice(0, ACCOUNTS_SHOWN)
          .map(([name, ns]) => `${name} ${formatDuration(ns)}`)
          .join(", ")}
      </td>
      <td class="left note" title={visible(incident.cause)}>
        {visible(incident.cause)}
      </td>
    </tr>
  );
}

function Checkpoint(props: { checkpoint: RunCheckpoint; run: string }) {
  const { checkpoint, run } = props;
  const time = (ns: number | null) => (ns === null ? "–" : formatDuration(ns));
  const size = (bytes: number | null) => (bytes === null ? "–" : formatBytes(bytes));
  return (
    <tr title={`life ${checkpoint.life}, ${formatWhen(1000 * checkpoint.at_s)}`}>
      <th>
        <a href={addressRoute(stepAddress(run, checkpoint.step))} data-row>
          {formatCount(checkpoint.step)}
        </a>
      </th>
      <td>{time(checkpoint.stall_ns)}</td>
      <td>{time(checkpoint.durable_ns)}</td>
      <td>{size(checkpoint.bytes)}</td>
      <td>{size(checkpoint.written)}</td>
    </tr>
  );
}

function Stall(props: { stall: RunStall; run: string }) {
  const { stall, run } = props;
  return (
    <tr>
      <th>
        <a href={addressRoute(stepAddress(run, stall.step))} data-row>
          {formatCount(stall.step)}
        </a>
      </th>
      <td>{stall.rank}</td>
      <td>{formatDuration(stall.took_ns)}</td>
      <td class="soft">{formatDuration(stall.usual_ns)}</td>
      <td class="left">{visible(stall.part)}</td>
      <td class="left">
        {stall.stack.length === 0 ? (
          <span class="soft">no stack was taken in it</span>
        ) : (
          <details class="stack">
            <summary>
              <code>{visible(stall.line === "" ? (stall.stack[0] ?? "") : stall.line)}</code>{" "}
              <span class="soft">
                {stall.stack_seen} of {stall.stacks}
              </span>
            </summary>
            <ol>
              {stall.stack.map((frame, number) => (
                <li key={number}>{visible(frame)}</li>
              ))}
            </ol>
          </details>
        )}
      </td>
    </tr>
  );
}

function Recordings(props: { run: RunOverview }) {
  const { recordings, recordings_left_out, address } = props.run;
  const query = new Map([["run", runName(address)]]);
  return (
    <Listing title="Recordings" count={recordings.length + recordings_left_out} empty="This run has recorded no events.">
      <thead>
        <tr>
          <th>Life and rank</th>
          <th>Size</th>
          <th class="left">Written</th>
        </tr>
      </thead>
      <tbody>
        {recordings.slice(0, 64).map((file) => (
          <tr key={file.name}>
            <th>
              <a href={formatRoute(["events", file.name], query)} data-row>
                {visible(file.name)}
              </a>
            </th>
            <td>{formatBytes(file.bytes)}</td>
            <td class="left soft">{formatWhen(file.modified_ms)}</td>
          </tr>
        ))}
      </tbody>
    </Listing>
  );
}
