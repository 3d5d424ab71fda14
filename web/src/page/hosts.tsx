// The hosts of a job: a map of all of them, those that are not as they should be, who decides, and what happened. It moves by itself. Search,
// rack and open host are in the URL, so that a copied link shows the same.

import { useMemo, useState } from "preact/hooks";

import { question } from "../ask";
import { formatCount, formatPlural, visible } from "../format";
import { countStates, found, LETTERS, shownState, STATES, troubles, troubleWords, type Board, type HostState } from "../hosts/board";
import { Detail } from "../hosts/detail";
import { useHosts, type Followed, type Live } from "../hosts/follow";
import { HostMap, wordsOfCounts, worstOf } from "../hosts/map";
import { Player } from "../hosts/player";
import { Timeline } from "../hosts/timeline";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { SearchBox, useSearch, type Search } from "../part/search";
import { EmptyState, Outcome } from "../part/state";
import { formatRoute, replaceQuery } from "../route";
import type { PageProps } from "../section";
import type { HostJobList } from "../wire/types";

type Query = ReadonlyMap<string, string>;
/** Hosts that the table names. */
const LISTED = 50;

export function HostsPage(props: PageProps) {
  const job = props.route.path[1];
  if (job !== undefined && job !== "") return <JobPage key={job} job={job} query={props.route.query} />;
  return <ListPage />;
}

function ListPage() {
  const { loaded, again } = useLoaded(question("hosts"));
  useKeys("This page", [{ keys: "r", says: "Look for jobs again", run: again }]);
  return (
    <>
      <h1>Hosts</h1>
      <Outcome of={loaded} again={again} show={(list) => <Jobs list={list} />} />
    </>
  );
}

function Jobs(props: { list: HostJobList }) {
  const { jobs, left_out } = props.list;
  if (jobs.length === 0) {
    return (
      <EmptyState title="No job of many hosts runs here">
        <p>
          One appears when <code>penstock run --nnodes</code> or <code>--hosts</code> has started it on this host. Without any, an imagined one can be played: <code>penstock simulate --watch --web</code>.
        </p>
      </EmptyState>
    );
  }
  return (
    <>
      <p class="lead">
        {formatPlural(jobs.length + left_out, "job")} of many hosts.{left_out > 0 && ` The oldest ${left_out} are not listed.`}
      </p>
      <ul class="files">
        {jobs.map((job) => (
          <li key={job.name}>
            <a href={formatRoute(["hosts", job.name])} data-row>
              <span class="strong">{visible(job.title)}</span>
              <span class="soft">{visible(job.phase)}</span>
              <span class="number soft">{job.hosts === null ? "" : formatPlural(job.hosts, "host")}</span>
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

function JobPage(props: { job: string; query: Query }) {
  const at = props.query.get("at") ?? "";
  const followed = useHosts(props.job, /^\d{1,9}(\.\d{1,3})?$/.test(at) ? Number(at) : null);
  useKeys("This page", [{ keys: "r", says: "Load all hosts again", run: followed.again }]);
  return (
    <div class="run hosts">
      <Outcome of={followed.loaded} again={followed.again} show={(live) => <Contents live={live} followed={followed} query={props.query} />} />
    </div>
  );
}

function Contents(props: { live: Live; followed: Followed; query: Query }) {
  const { live, followed, query } = props;
  const { board } = live;
  const search = useSearch(query, "find");
  const counts = useMemo(() => countStates(board), [live]);
  // States are searched, too, so what moves may change what is found.
  const isFound = useMemo(() => found(board, search.typed), [board, search.typed, search.typed === "" ? null : live]);
  const rack = rackOf(board, query.get("rack"));
  const open = placeOf(board, query.get("host"));
  const [chosen, choose] = useState(open);
  const zoom = (number: number | null) => replaceQuery(new Map([["rack", number === null ? null : (board.rackNames[number] ?? null)]]));
  const show = (place: number | null) => replaceQuery(new Map([["host", place === null ? null : (board.names[place] ?? null)]]));
  const worst = () => choose(worstOf(board));
  useKeys("This page", [
    { keys: "w", says: "Choose the host that needs somebody most", run: worst },
    { keys: "z", says: "Show the rack of the chosen host alone, or all", run: () => zoom(rack === null && chosen >= 0 ? (board.racks[chosen] ?? null) : null) },
    { keys: "0", says: "Show all racks", run: () => zoom(null) },
    { keys: "Escape", says: "Close the open host, or show all racks", run: () => (open >= 0 ? show(null) : zoom(null)) },
  ]);
  const { playback } = followed;
  const summary = `${formatPlural(board.count, "host")}: ${wordsOfCounts(counts)}`;
  return (
    <>
      <Head live={live} counts={counts} />
      {playback !== null && <Player playback={playback} length_s={board.head.length_s ?? 0} next_s={board.head.next_s} play={followed.play} />}
      <section>
        <div class="section-head">
          <h2>{rack === null ? "All hosts" : `Hosts of ${visible(board.rackNames[rack] ?? "")}`}</h2>
          <SearchBox search={search} label="Filter: words of names, racks, states" />
          {isFound !== null && <Count isFound={isFound} />}
          {rack !== null && (
            <button type="button" onClick={() => zoom(null)} title="Show all racks (0)">
              All racks
            </button>
          )}
        </div>
        <Legend counts={counts} search={search} />
        <HostMap live={live} isFound={isFound} rack={rack} chosen={chosen} choose={choose} open={show} zoom={zoom} summary={summary} />
      </section>
      {open >= 0 && <Detail key={open} board={board} place={open} moment={playback === null ? null : Math.round(1000 * board.head.at_s)} close={() => show(null)} />}
      <div class="pair">
        <Troubled live={live} choose={choose} open={show} zoom={zoom} />
        <Deciders board={board} />
      </div>
      <Timeline lines={board.events.lines} head={board.head} seek={playback === null ? null : (position_s) => followed.play((now) => ({ ...now, position_s }))} />
    </>
  );
}

function Head(props: { live: Live; counts: ReadonlyMap<string, number> }) {
  const { board, problem } = props.live;
  const here = (props.counts.get("here") ?? 0) + (props.counts.get("late") ?? 0);
  return (
    <>
      <header class="head head-line">
        <h1>{visible(board.head.title)}</h1>
        <span class={problem === "" ? "pill" : "pill failed"}>{visible(board.head.phase)}</span>
        <p class="facts">
          <span>{formatPlural(here, "host")} here</span>
          {board.rackNames.length > 1 && <span>{formatPlural(board.rackNames.length, "rack")}</span>}
          <span>lease {formatCount(board.head.lease_s)} s</span>
        </p>
      </header>
      {(problem !== "" || board.head.frozen !== "") && (
        <ul class="notices" role="alert">
          {problem !== "" && <li>As last heard: {visible(problem)}</li>}
          {board.head.frozen !== "" && <li>Nothing is decided: {visible(board.head.frozen)}</li>}
        </ul>
      )}
    </>
  );
}

function Count(props: { isFound: Uint8Array }) {
  const count = useMemo(() => props.isFound.reduce((sum, one) => sum + one, 0), [props.isFound]);
  return (
    <span class="soft small" role="status">
      {formatPlural(count, "host")} found
    </span>
  );
}

/** What colours and letters mean, with counts; each narrows the map to its state. */
function Legend(props: { counts: ReadonlyMap<string, number>; search: Search }) {
  const { counts, search } = props;
  return (
    <p class="host-legend">
      {STATES.filter((state) => counts.has(state)).map((state) => (
        <button key={state} type="button" class="quiet small" aria-pressed={search.typed === state} onClick={() => search.type(search.typed === state ? "" : state)}>
          <Swatch state={state} />
          <span class="number">
            {state} {formatCount(counts.get(state) ?? 0)}
          </span>
        </button>
      ))}
    </p>
  );
}

/** The colour and the letter of a state. */
function Swatch(props: { state: HostState }) {
  return (
    <i class={`host-swatch ink-host-${props.state}`} aria-hidden="true">
      <b>{LETTERS[props.state]}</b>
    </i>
  );
}

function Troubled(props: { live: Live; choose: (place: number) => void; open: (place: number) => void; zoom: (rack: number) => void }) {
  const { board } = props.live;
  const all = useMemo(() => troubles(board), [props.live]);
  return (
    <section class="host-troubled">
      <h2>Not as they should be</h2>
      {all.length === 0 ? (
        <p class="soft">All hosts are here and heard on time.</p>
      ) : (
        <ul>
          {all.slice(0, LISTED).map((trouble) => {
            const [first = 0] = trouble.places;
            const rack = board.racks[first] ?? 0;
            const isRack = trouble.places.length > 1;
            return (
              <li key={first}>
                <Swatch state={STATES[trouble.code] ?? "joining"} />
                <button
                  type="button"
                  class="quiet number"
                  data-row
                  title={isRack ? "Show the rack alone" : "Open the host"}
                  onClick={() => {
                    props.choose(first);
                    if (isRack) props.zoom(rack);
                    else props.open(first);
                  }}
                >
                  {visible(troubleWords(board, trouble))}
                </button>
              </li>
            );
          })}
        </ul>
      )}
      {all.length > LISTED && <p class="soft small">{formatCount(all.length - LISTED)} more are not listed; the filter finds them.</p>}
    </section>
  );
}

function Deciders(props: { board: Board }) {
  const { board } = props;
  const { head } = board;
  if (head.length_s !== null) {
    return (
      <section>
        <h2>Who decides</h2>
        <p class="soft">Nobody loses a leader in an imagined job: voters are not modelled.</p>
      </section>
    );
  }
  return (
    <section>
      <h2>Who decides</h2>
      <dl class="host-deciders number">
        <dt>Term</dt>
        <dd>{head.term.toString(16)}</dd>
        <dt>Leads</dt>
        <dd>{head.leader === "" ? "nobody" : visible(head.leader)}</dd>
        <dt>Voters</dt>
        <dd>
          {head.voters.map((name, number) => {
            const place = board.names.indexOf(name);
            const told = place < 0 ? visible(name) : `${visible(name)} (${shownState(board, place)})`;
            return <span key={name}>{number === 0 ? told : ` · ${told}`}</span>;
          })}
        </dd>
      </dl>
    </section>
  );
}

function rackOf(board: Board, name: string | undefined): number | null {
  const number = name === undefined ? -1 : board.rackNames.indexOf(name);
  return number < 0 ? null : number;
}

function placeOf(board: Board, name: string | undefined): number {
  return name === undefined ? -1 : board.names.indexOf(name);
}
