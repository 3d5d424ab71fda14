// The section for events: the list of recordings, and below it the page of one of them.

import { question } from "../ask";
import { formatBytes, formatPlural, formatWhen, visible } from "../format";
import { useKeys } from "../keys";
import { useLoaded } from "../load";
import { EmptyState, Outcome } from "../part/state";
import { formatRoute } from "../route";
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
  const { directory, recordings, left_out } = props.list;
  if (recordings.length === 0) {
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
        {formatPlural(recordings.length + left_out, "recording")} in <code>{visible(directory)}</code>, newest first.
        {left_out > 0 && ` The oldest ${left_out} are not listed.`}
      </p>
      <ul class="files">
        {recordings.map((file) => (
          <FileLine key={file.name} file={file} />
        ))}
      </ul>
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

function FileLine(props: { file: RecordingFile }) {
  const { name, bytes, modified_ms } = props.file;
  return (
    <li>
      <a href={formatRoute(["events", name])} data-row>
        <span class="file-name">{visible(name)}</span>
        <span class="soft">{formatWhen(modified_ms)}</span>
        <span class="soft number">{formatBytes(bytes)}</span>
      </a>
    </li>
  );
}
