// The section for events: the list of recordings, and below it the page of one of them.

import { question } from "../ask";
import { formatBytes, formatPlural, formatWhen, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { EmptyState, Outcome } from "../part/state";
import { addressRoute, formatRoute } from "../route";
import { runAddress } from "../run/address";
import type { PageProps } from "../section";
import type { RecordingFile, RecordingList } from "../wire/types";
import { RecordingPage } from "./recording";

export function EventsPage(props: PageProps) {
  const name = props.route.path[1];
  if (name !== undefined && name !== "") return <RecordingPage key={name} name={name} query={props.route.query} />;
  return <ListPage />;
}

function ListPage() {
  const { loaded, again } = useLoaded(question("events"));
  useKeys("This page", [{ keys: "r", says: "Load the list again", run: again }]);
  return (
    <>
      <h1>Events</h1>
      <Outcome of={loaded} again={again} show={(list) => <Recordings list={list} />} />
    </>
  );
}

function Recordings(props: { list: RecordingList }) {
  const { directory, recordings, left_out, runs, runs_left_out } = props.list;
  if (recordings.length + runs.length === 0) {
    return (
      <EmptyState title="No recordings yet">
        <p>
          A recording appears in <code>{visible(directory)}</code> when a program records its events there:
        </p>
        <pre>{example(directory)}</pre>
      </EmptyState>
    );
  }
  return (
    <>
      <p class="lead">
        {formatPlural(recordings.length + left_out, "recording")} in <code>{visible(directory)}</code>
        {recordings.length > 0 && ", newest first"}.{left_out > 0 && ` The oldest ${left_out} are not listed.`}
      </p>
      {recordings.length > 0 && (
        <ul class="files">
          {recordings.map((file) => (
            <FileLine key={file.name} file={file} run={null} />
          ))}
        </ul>
      )}
      {runs.map((of_run) => (
        <section key={of_run.run}>
          <h2>
            Run <a href={addressRoute(runAddress(of_run.run))}>{visible(of_run.run)}</a>
          </h2>
          <ul class="files of-run">
            {of_run.recordings.map((file) => (
              <FileLine key={file.name} file={file} run={of_run.run} />
            ))}
          </ul>
          {of_run.left_out > 0 && <p class="cut">{formatPlural(of_run.left_out, "older recording")} are on the page of the run.</p>}
        </section>
      ))}
      {runs_left_out > 0 && <p class="cut">{formatPlural(runs_left_out, "older run")} are not listed.</p>}
    </>
  );
}

function example(directory: string): string {
  return [
    "from penstock import events",
    "",
    `with events.recording(${JSON.stringify(directory)}):`,
    '    with events.span("step", number=1):',
    "        ...",
  ].join("\n");
}

function FileLine(props: { file: RecordingFile; run: string | null }) {
  const { name, bytes, modified_ms } = props.file;
  return (
    <li>
      <a href={formatRoute(["events", name], new Map(props.run === null ? [] : [["run", props.run]]))} data-row>
        <span class="file-name">{visible(name)}</span>
        <span class="soft">{formatWhen(modified_ms)}</span>
        <span class="soft number">{formatBytes(bytes)}</span>
      </a>
    </li>
  );
}
