// Home: the datasets of the registry, and the recipes and runs below the server's folders.

import { question } from "../ask";
import { formatBytes, formatCount, formatPlural, shellWord, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { Command } from "../part/command";
import { matches, SearchBox, useSearch, type Search } from "../part/search";
import { EmptyState, Outcome } from "../part/state";
import { addressRoute, formatRoute } from "../route";
import { foldersOf, runAddress, runsAddress } from "../run/address";
import type { PageProps } from "../section";
import type { DatasetList, DatasetNewest, DatasetProblem, StreamList } from "../wire/types";
import { VersionsPage } from "./versions";

type Dataset = DatasetNewest | DatasetProblem;

/** Shorter lists are seen at once. */
const SEARCHED_MIN = 8;

export function DatasetsPage(props: PageProps) {
  const [section, ...name] = props.route.path;
  if (section === "d" && name.length > 0) return <VersionsPage key={name.join("/")} name={name.join("/")} />;
  return <ListPage query={props.route.query} />;
}

function ListPage(props: { query: ReadonlyMap<string, string> }) {
  const { loaded, again } = useLoaded(question("datasets"));
  const { loaded: streams } = useLoaded(question("streams"));
  const search = useSearch(props.query, "find");
  useKeys("This page", [{ keys: "r", says: "Load the lists again", run: again }]);
  return (
    <>
      <h1>Data</h1>
      <Outcome of={loaded} again={again} show={(list) => <Datasets list={list} search={search} />} />
      {streams.phase === "ready" && <Streams streams={streams.value} typed={search.typed} />}
    </>
  );
}

function Datasets(props: { list: DatasetList; search: Search }) {
  const { search } = props;
  const { datasets, registry, left_out } = props.list;
  if (datasets.length === 0) {
    return (
      <EmptyState title="Nothing is registered yet">
        <p>
          The registry is <code>{visible(registry)}</code>. Point at the files you have; they stay where they are:
        </p>
        <Command text={`penstock data register web 'raw/*.jsonl' --registry ${shellWord(registry)}`} />
      </EmptyState>
    );
  }
  const found = datasets.filter((one) => matches(search.typed, [one.name, ...(isReadable(one) ? [one.format, one.note, ...Object.keys(one.tags)] : [])]));
  return (
    <>
      <p class="lead">
        {formatPlural(datasets.length + left_out, "dataset")} in <code>{visible(registry)}</code>.
        {left_out > 0 && ` ${formatCount(left_out)} of them are not listed; searching finds them by name.`}
      </p>
      {datasets.length >= SEARCHED_MIN && <SearchBox search={search} label="Find datasets, recipes and runs" />}
      {search.typed !== "" && (
        <p class="soft small" role="status">
          {formatPlural(found.length, "dataset")} of {formatCount(datasets.length)} listed.
        </p>
      )}
      {left_out > 0 && search.rested !== "" ? <Searched words={search.rested} /> : <DatasetTables datasets={found} />}
    </>
  );
}

/** What the server finds by name among more datasets than it lists. */
function Searched(props: { words: string }) {
  const { loaded, again } = useLoaded(question("datasets", { search: props.words }));
  return <Outcome of={loaded} again={again} show={(list) => <DatasetTables datasets={list.datasets} />} />;
}

function DatasetTables(props: { datasets: readonly Dataset[] }) {
  const isDerived = (one: Dataset) => isReadable(one) && one.derived;
  const own = props.datasets.filter((one) => !isDerived(one));
  const derived = props.datasets.filter(isDerived);
  return (
    <>
      {own.length > 0 && <DatasetTable title="Dataset" datasets={own} />}
      {derived.length > 0 && <DatasetTable title="Made from others" datasets={derived} />}
    </>
  );
}

function DatasetTable(props: { title: string; datasets: readonly Dataset[] }) {
  return (
    <div class="wide">
      <table class="list">
        <thead>
          <tr>
            <th>{props.title}</th>
            <th class="left">Newest</th>
            <th class="left">Format</th>
            <th>Rows</th>
            <th>Size</th>
            <th>Shards</th>
            <th>Fields</th>
            <th class="left">Note</th>
          </tr>
        </thead>
        <tbody>
          {props.datasets.map((dataset) => (
            <DatasetLine key={dataset.name} dataset={dataset} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function DatasetLine(props: { dataset: Dataset }) {
  const { dataset } = props;
  const path = formatRoute(["d", ...dataset.name.split("/")]);
  if (!isReadable(dataset)) {
    return (
      <tr>
        <th>
          <a href={path}>{visible(dataset.name)}</a>
        </th>
        <td class="left fail" colSpan={7}>
          {visible(dataset.problem)}
        </td>
      </tr>
    );
  }
  const tagged = Object.entries(dataset.tags).filter(([, number]) => number === dataset.number).map(([tag]) => tag);
  return (
    <tr>
      <th>
        <a href={addressRoute(dataset.address)} data-row class="strong">
          {visible(dataset.name)}
        </a>
      </th>
      <td class="left">
        <a href={path} title="All versions">
          @{dataset.number}
        </a>
        {tagged.map((tag) => (
          <span key={tag} class="tag">
            {visible(tag)}
          </span>
        ))}
      </td>
      <td class="left soft">{dataset.format}</td>
      <td>{formatCount(dataset.rows)}</td>
      <td>{formatBytes(dataset.bytes)}</td>
      <td>{formatCount(dataset.shards)}</td>
      <td>{formatCount(dataset.fields)}</td>
      <td class="left soft note">{visible(dataset.note)}</td>
    </tr>
  );
}

function Streams(props: { streams: StreamList; typed: string }) {
  const { roots } = props.streams;
  const reasons = Object.entries(props.streams.reasons);
  const recipes = props.streams.recipes.filter((name) => matches(props.typed, [name]));
  const runs = props.streams.runs.filter((name) => matches(props.typed, [name]));
  const none = props.streams.recipes.length + props.streams.runs.length === 0;
  return (
    <section>
      <h2>Recipes and runs</h2>
      {none ? (
        <p class="lead">
          {reasons.length === 0 ? "There are none" : "None were found"} below {roots.map(visible).join(", ")}. An address in the bar above opens any other file there.
        </p>
      ) : (
        <ul class="streams">
          {recipes.map((recipe) => (
            <li key={recipe}>
              <a href={addressRoute(`${recipe}#step=0`)} data-row>
                <span class="strong">{visible(recipe)}</span> <span class="soft">recipe, step 0</span>
              </a>
            </li>
          ))}
          {foldersOf(runs).map(([folder, count]) => (
            <li key={`runs:${folder}`}>
              <a href={addressRoute(runsAddress(folder))} data-row>
                <span class="strong">{visible(folder)}</span> <span class="soft">{formatPlural(count, "run")} side by side</span>
              </a>
            </li>
          ))}
          {runs.map((run) => (
            <li key={run}>
              <a href={addressRoute(runAddress(run))} data-row>
                <span class="strong">{visible(run)}</span> <span class="soft">run</span>
              </a>
            </li>
          ))}
        </ul>
      )}
      {reasons.length > 0 && <p class="cut">Left out: {reasons.map(([what, count]) => `${what} (${formatCount(count)})`).join("; ")}.</p>}
    </section>
  );
}

/** Whether a dataset has a newest version to show, and not only a reason why it cannot be read. */
function isReadable(dataset: Dataset): dataset is DatasetNewest {
  return !("problem" in dataset);
}
