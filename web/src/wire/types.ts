// Generated from the declarations in python/penstock/view/wire by `make wire`: change those, not this.

export interface Answers {
  batch: PackedBatch;
  columns: VersionSpread;
  datasets: DatasetList;
  difference: VersionDifference;
  differences: BatchDifference;
  doctor: DoctorReport;
  error: ErrorAnswer;
  events: RecordingList;
  "events/{name}": RecordingDetail;
  "events/{name}/{index}": EventDetail;
  filter: FilteredPage;
  hosts: HostJobList;
  "hosts/board": HostBoard;
  "hosts/host": HostDetail;
  "hosts/moves": HostMoves;
  lanes: LaneLens;
  lineage: LineageGraph;
  recipes: RecipeDifference;
  records: RecordPage;
  roles: RoleBudget;
  row: WholeRow;
  rows: RowPage;
  run: RunOverview;
  "run/curves": CurveSet;
  "run/heat": HeatMap;
  "run/state": RunState;
  runs: RunList;
  shards: ShardPage;
  stages: SampleStagesAnswer;
  streams: StreamList;
  taps: RunTaps;
  token: TokenDetail;
  version: VersionDetail;
  versions: VersionList;
}
/**
 * The header of packed columns (``penstock.data.tap.columns``). Records have no columns, they are asked for by page.
 */
export interface PackedBatch {
  facts: TokenBatchHead | RecordBatchFacts;
  columns: PackedColumn[];
}
/**
 * The facts in front of the packed columns of a batch of tokens; ``kinds`` names the numbers of the column of that name.
 */
export interface TokenBatchHead {
  step: number;
  lane: string;
  digest: string;
  cuts?: string[];
  command: string;
  data_command: string;
  address: string;
  rows: number;
  padding: number;
  kind: "tokens";
  length: number;
  dtype: string;
  loss_tokens: number | null;
  columns: string[];
  sources: SourceFacts[];
  window: WindowFacts;
  kinds: string[];
}
/**
 * A source of a batch.
 */
export interface SourceFacts {
  alias: string;
  version: string;
  tokenizer: TokenizerFacts | null;
}
/**
 * What turns text into tokens.
 */
export interface TokenizerFacts {
  path: string;
  style: string;
  size: number;
}
/**
 * Which rows and tokens of a batch are there, each as first and end; ``cuts`` says in words what is not.
 */
export interface WindowFacts {
  address: string;
  rows: number[];
  tokens: number[];
  of_rows: number;
  of_tokens: number;
  cuts: string[];
  sources: SourceFacts[];
}
/**
 * A batch of records.
 */
export interface RecordBatchFacts {
  step: number;
  lane: string;
  digest: string;
  command: string;
  data_command: string;
  address: string;
  rows: number;
  padding: number;
  kind: "records";
  fields: string[];
  undecodable: UndecodableSample[];
}
/**
 * A sample that could not be decoded, and its row of the batch.
 */
export interface UndecodableSample {
  row: number;
  origin: OriginFacts;
  reason: string;
}
/**
 * Where a stretch of a row came from.
 */
export interface OriginFacts {
  source: string;
  version: string;
  sample: number;
  shard: string;
  byte_range: [number, number] | null;
  /**
   * @minItems 2
   * @maxItems 2
   */
  token_span: [number, number];
  /**
   * @minItems 2
   * @maxItems 2
   */
  row_span: [number, number];
  epoch: number;
}
/**
 * A column behind the header: its bytes begin at ``at``, counted from the end of the header.
 */
export interface PackedColumn {
  name: string;
  dtype: string;
  shape: number[];
  at: number;
  bytes: number;
}
/**
 * A histogram of every field, made of ``looked_at`` rows of all.
 */
export interface VersionSpread {
  columns: ColumnSpread[];
  columns_left_out: number;
  looked_at: number;
  rows: number;
}
/**
 * How the values of a field are spread; numbers and lengths have ends and a median.
 */
export interface ColumnSpread {
  name: string;
  of: "lengths" | "nothing" | "numbers" | "values";
  missing: number;
  bars: ColumnBar[];
  not_finite?: number;
  low?: number;
  high?: number;
  median?: number;
}
/**
 * A bar of a histogram, and the expression that keeps its rows.
 */
export interface ColumnBar {
  label: string;
  count: number;
  where: string | null;
}
/**
 * The datasets of the registry.
 */
export interface DatasetList {
  registry: string;
  datasets: (DatasetNewest | DatasetProblem)[];
  left_out: number;
  command: string;
}
/**
 * A dataset by its newest version; tags by name, with the number of the version that each is at.
 */
export interface DatasetNewest {
  address: string;
  number: number;
  digest: string;
  format: string;
  rows: number;
  bytes: number;
  shards: number;
  fields: number;
  created: string;
  note: string;
  derived: boolean;
  name: string;
  tags: {
    [k: string]: number;
  };
}
/**
 * A dataset that cannot be read, and why.
 */
export interface DatasetProblem {
  name: string;
  problem: string;
}
/**
 * What changed between two versions; rows are null when they were not compared.
 */
export interface VersionDifference {
  before: string;
  after: string;
  equal: boolean;
  fields_added: string[];
  fields_removed: string[];
  fields_changed: {
    /**
     * @minItems 2
     * @maxItems 2
     */
    [k: string]: [string, string];
  };
  shards_added: string[];
  shards_removed: string[];
  shards_changed: string[];
  shards_equal: number;
  rows_added: number | null;
  rows_removed: number | null;
  rows_changed: number | null;
  command: string;
}
/**
 * Two batches: equal or not, how much differs, and samples (version and row) that only one of them has.
 */
export interface BatchDifference {
  kind: "records" | "tokens";
  equal: boolean;
  digests: string[];
  summary: DifferenceSummary;
  first: FirstDifference | null;
  only: [string, number][][];
  only_counts: number[];
  both_count: number;
}
/**
 * Sizes of both sides and, of batches of tokens, how much of what both have differs.
 */
export interface DifferenceSummary {
  rows: number[];
  length?: number[];
  rows_differing?: number;
  tokens_differing?: number;
  masks_differing?: number;
}
/**
 * The first place that differs: a token and its byte, or a field of a record.
 */
export interface FirstDifference {
  row: number;
  token?: number;
  byte?: number;
  field?: string;
}
/**
 * What the doctor says about the machine that serves the pages.
 */
export interface DoctorReport {
  version: string;
  checks: DoctorCheck[];
  examined_ms: number;
}
/**
 * One thing that the doctor looked at; ``hint`` says what to do about it, and is empty when nothing needs doing.
 */
export interface DoctorCheck {
  name: string;
  verdict: "fail" | "info" | "ok" | "warn";
  value: string;
  hint: string;
}
/**
 * What any route answers instead, with a status that is no success.
 */
export interface ErrorAnswer {
  error: Refusal;
}
/**
 * Why a question is not answered, for people.
 */
export interface Refusal {
  message: string;
  hint: string | null;
}
/**
 * The newest recordings of the events directory, and those of the runs below the server's folders.
 */
export interface RecordingList {
  directory: string;
  recordings: RecordingFile[];
  left_out: number;
  runs: RunRecordings[];
  runs_left_out: number;
}
/**
 * A recording in the list of them.
 */
export interface RecordingFile {
  name: string;
  bytes: number;
  modified_ms: number;
}
/**
 * The newest recordings of a run, by its name in addresses.
 */
export interface RunRecordings {
  run: string;
  recordings: RecordingFile[];
  left_out: number;
}
/**
 * One recording: where it came from, its table by kind, its timeline.
 *
 *     ``closed`` says whether the recorder stopped in order; it is false while it records and after a kill.
 */
export interface RecordingDetail {
  name: string;
  path: string;
  process: {
    [k: string]: unknown;
  };
  lost: number;
  torn_bytes: number;
  closed: boolean;
  event_count: number;
  length_ns: number;
  kinds: KindRow[];
  kinds_left_out: number;
  timeline: TimelineColumns;
}
/**
 * All events of one kind; durations are null where no event of it has ended.
 */
export interface KindRow {
  kind: string;
  count: number;
  open_count: number;
  total_ns: number | null;
  p50_ns: number | null;
  p99_ns: number | null;
  max_ns: number | null;
}
/**
 * Events as columns in file order: the position in a column is the event's index.
 *
 *     ``kind`` counts in ``names``; ``duration_ns`` is null for a point and for a span that never ended, and those are in ``open``.
 */
export interface TimelineColumns {
  names: string[];
  kind: number[];
  thread: number[];
  time_ns: number[];
  duration_ns: (number | null)[];
  open: number[];
}
/**
 * One event with its fields; ``cut`` says whether the recorder shortened something to keep the record small.
 */
export interface EventDetail {
  kind: string;
  time_ns: number;
  duration_ns: number | null;
  open: boolean;
  cut: boolean;
  thread: number;
  fields: {
    [k: string]: unknown;
  };
}
/**
 * Rows that pass an expression; ``next`` is where to continue, null when the last row was looked at.
 *
 *     ``failed`` rows could not be computed, the first of them for the ``reason``.
 */
export interface FilteredPage {
  rows: RowLine[];
  of: number;
  looked_at: number;
  next: number | null;
  failed: number;
  reason: string;
}
/**
 * A row in a table of them, cells in the order of the schema.
 */
export interface RowLine {
  row: number;
  cells: CellValue[];
}
/**
 * A value as it is shown.
 *
 *     ``of`` is the whole length where less is shown, ``size`` the bytes of bytes and media, ``path`` where in the value the bytes are,
 *     for media inside of an object.
 */
export interface CellValue {
  kind: string;
  text: string;
  of?: number;
  items?: number;
  size?: number;
  path?: string;
  dtype?: string;
  shape?: number[];
}
/**
 * Jobs of many hosts, the newest first; others are ``left_out``.
 */
export interface HostJobList {
  jobs: HostJob[];
  left_out: number;
}
/**
 * A job of many hosts that can be looked at; ``length_s`` is null unless it is imagined and played.
 */
export interface HostJob {
  name: string;
  title: string;
  phase: string;
  hosts: number | null;
  length_s: number | null;
}
/**
 * All hosts of a job at one moment.
 */
export interface HostBoard {
  job: string;
  stamp: string;
  head: HostHead;
  hosts: HostColumns;
  events: HostEvents;
}
/**
 * What is said of all hosts together. ``problem`` says why this is how it was, and not how it is; ``next_s`` when something happens
 *     next in a job that is played.
 */
export interface HostHead {
  title: string;
  at_s: number;
  phase: string;
  problem: string;
  is_over: boolean;
  term: number;
  leader: string;
  voters: string[];
  frozen: string;
  lease_s: number;
  heartbeat_s: number;
  length_s: number | null;
  speed: number;
  next_s: number | null;
}
/**
 * All hosts by place. ``names`` has one on each line. ``rank_shift`` is the host rank less the place, ``due_s`` when the heartbeat of a
 *     late host was due, ``lease_end_s`` when the lease of a host that does not renew it ends.
 */
export interface HostColumns {
  count: number;
  names: string;
  racks: TextRuns;
  states: TextRuns;
  rank_shift: NumberRuns;
  since_s: NumberRuns;
  due_s: NumberRuns;
  lease_end_s: NumberRuns;
}
/**
 * A column: each value as often as the number at its place says.
 */
export interface TextRuns {
  values: string[];
  counts: number[];
}
/**
 * The same of numbers; null where there is none.
 */
export interface NumberRuns {
  values: (number | null)[];
  counts: number[];
}
/**
 * The newest events, the newest last; ``mark`` tells whether there are others.
 */
export interface HostEvents {
  mark: string;
  lines: HostEventLine[];
}
/**
 * Something that happened; ``term`` is 0 where nobody wrote it down.
 */
export interface HostEventLine {
  at_s: number;
  kind: "fault" | "gang" | "host" | "term";
  what: string;
  term: number;
}
/**
 * One host and what runs on it; ``problem`` says why nothing is known of that.
 */
export interface HostDetail {
  place: number;
  name: string;
  state: string;
  rank: number | null;
  rack: string;
  address: string;
  ranks: string;
  part: string;
  trouble: string;
  rows: RankRow[];
  problem: string;
}
/**
 * A rank of a host; what is not known is null.
 */
export interface RankRow {
  worker: string;
  state: string;
  step: number | null;
  phase: string | null;
  cpu_percent: number | null;
  rss_bytes: number | null;
}
/**
 * What has changed since a stamp. Where hosts are others, or so many that all are less, ``moved`` is null: ask for the board again.
 *     ``events`` are null where they are the same.
 */
export interface HostMoves {
  stamp: string;
  head: HostHead;
  moved: MovedHosts | null;
  events: HostEvents | null;
}
/**
 * Hosts that are different, by place.
 */
export interface MovedHosts {
  places: number[];
  states: string[];
  ranks: (number | null)[];
  since_s: (number | null)[];
  due_s: (number | null)[];
  lease_end_s: (number | null)[];
}
/**
 * All lanes of a step: whether they add up to it, and what stands in two rows (each as lane and row of the lane).
 */
export interface LaneLens {
  step: number;
  lanes: LensLane[];
  digest: string;
  adds_up: boolean;
  same_rows: [number, number][][];
  same_rows_count: number;
  repeats: LensRepeat[];
  repeats_count: number;
  ranks: LensRanks;
}
/**
 * What one lane of a step has.
 */
export interface LensLane {
  step: number;
  lane: string;
  address: string;
  digest: string;
  rows: LensRow[];
}
/**
 * A row of a lane: what tells it apart (empty for padding), and the first of its documents as source and sample.
 */
export interface LensRow {
  content: string;
  documents: [string, number][];
  document_count: number;
}
/**
 * Tokens of a sample that stand in two places, each as lane and row of the lane.
 */
export interface LensRepeat {
  source: string;
  sample: number;
  tokens: number;
  places: [number, number][];
}
/**
 * Ranks that share lanes, each built anew, and those that differ.
 */
export interface LensRanks {
  count: number;
  unequal: UnequalRanks[];
}
/**
 * Ranks that read the same lane at the same step and have other bits, by digest.
 */
export interface UnequalRanks {
  lane: string;
  step: number;
  ranks: {
    [k: string]: string[];
  };
}
/**
 * What a version came from and what was made from it; arrows go from parent to child.
 */
export interface LineageGraph {
  places: LineagePlace[];
  arrows: [string, string][];
  left_out: number;
  at: string;
  command: string;
}
/**
 * A version in the graph; parents have negative levels. One that this registry lacks is not ``known``.
 */
export interface LineagePlace {
  address: string;
  digest: string;
  level: number;
  known: boolean;
}
/**
 * Two recipes: fields that differ with both sides, and the first step whose batch does; null when all compared are equal.
 */
export interface RecipeDifference {
  fields: {
    [k: string]: string[];
  };
  equal: boolean;
  compared_steps: number;
  first_step: number | null;
}
/**
 * Some records of a batch that has ``of``.
 */
export interface RecordPage {
  rows: RecordRow[];
  of: number;
}
/**
 * A record of a batch.
 */
export interface RecordRow {
  row: number;
  valid: boolean;
  fields: FieldPreview[];
  origin: OriginFacts[];
}
/**
 * A field of a row or record; ``cut`` says what the preview leaves out, ``type`` what browsers call a medium.
 */
export interface FieldPreview {
  name: string;
  kind: string;
  preview: unknown;
  size: string;
  cut?: string;
  type?: string;
}
/**
 * What the loss is spent on, by role; empty where no source is of conversations.
 */
export interface RoleBudget {
  by_role: RoleShare[];
  documents: number;
  cut: string;
}
/**
 * Tokens that a role says, and how many of them count in the loss.
 */
export interface RoleShare {
  role: string;
  tokens: number;
  loss: number;
}
/**
 * One row with all of its fields, and where its bytes lie: first and end in the shard, null where they are not known.
 */
export interface WholeRow {
  row: number;
  of: number;
  fields: RowField[];
  shard: string;
  place: number;
  bytes: number[] | null;
}
/**
 * A field of one row.
 */
export interface RowField {
  kind: string;
  text: string;
  of?: number;
  items?: number;
  size?: number;
  path?: string;
  dtype?: string;
  shape?: number[];
  name: string;
  field: number;
}
/**
 * Some rows of a version that has ``of``.
 */
export interface RowPage {
  rows: RowLine[];
  of: number;
}
/**
 * A run as its page shows it; numbers are those of ``penstock report --json``.
 */
export interface RunOverview {
  signature: string;
  is_running: boolean;
  state: "ended" | "failed" | "running" | "silent";
  name: string;
  address: string;
  last_step: number | null;
  ranks: number[];
  diagnosis: RunDiagnosis;
  speed: RunSpeed;
  mfu: RunMfu;
  goodput: RunGoodput;
  memory: RunMemory;
  ledger: RunLedger;
  marks: RunMarks;
  stalls: RunStall[];
  columns: HeatColumn[];
  faults: string[];
  recordings: RecordingFile[];
  recordings_left_out: number;
  took_ms: number;
  commands: string[];
}
/**
 * The first line of the report, and every cause by cost; the first of them is the line where something is ``named``.
 */
export interface RunDiagnosis {
  line: string;
  verdict: "abstains" | "named" | "none";
  wall_ns: number;
  causes: RunCause[];
}
/**
 * Something that costs time: ``line`` says it whole, ``next_step`` what to do about it.
 */
export interface RunCause {
  kind: string;
  cost_ns: number;
  share: number | null;
  line: string;
  next_step: string;
}
/**
 * Times of steps and tokens.
 */
export interface RunSpeed {
  steps: number;
  p50_ns: number | string;
  p99_ns: number | string;
  steps_per_s: number | string;
  tokens: number | string;
  tokens_per_s: number | string;
}
/**
 * MFU as a share, or why there is none.
 */
export interface RunMfu {
  value: number | string;
  reason: string;
}
/**
 * Shares of the time that did what it should.
 */
export interface RunGoodput {
  runtime: number | string;
  runtime_high: number | string;
  scheduling: number | string;
  program: number | string;
}
/**
 * The largest values of any rank, in bytes.
 */
export interface RunMemory {
  rss: number | string;
  memory_peak: number | string;
  memory_reserved: number | string;
  allocator_retries: number | string;
}
/**
 * Where device time went: sums over ranks, in all and by life.
 */
export interface RunLedger {
  wall_ns: number;
  ranks: number;
  accounts: {
    [k: string]: number;
  };
  parts: {
    [k: string]: number;
  };
  account_names: AccountName[];
  part_names: AccountName[];
  lives: LifeSum[];
}
/**
 * An account or a part of a step, and what is in it.
 */
export interface AccountName {
  name: string;
  says: string;
}
/**
 * The ledger of one life over all ranks, or of several old ones together; ``parts`` are those of ``train``.
 */
export interface LifeSum {
  life: number;
  last_life: number;
  wall_ns: number;
  accounts: {
    [k: string]: number;
  };
  parts: {
    [k: string]: number;
  };
  kept_steps: number;
  lost_steps: number;
}
/**
 * What happened at which step.
 */
export interface RunMarks {
  lives: RunLife[];
  incidents: RunIncident[];
  checkpoints: RunCheckpoint[];
  checkpoints_left_out: number;
  skips: RunSkip[];
}
/**
 * A life of the run: its first and last step, and how it ended, empty where nothing says.
 */
export interface RunLife {
  life: number;
  step: number | null;
  last_step: number | null;
  ranks: number;
  began_s: number | null;
  end: string;
}
/**
 * A death, restart or return, and its cost; ``step`` is null where it is not known.
 */
export interface RunIncident {
  kind: string;
  life: number;
  cause: string;
  ranks: number;
  device_ns: number;
  accounts: {
    [k: string]: number;
  };
  lost_steps: number;
  step: number | null;
}
/**
 * A checkpoint, how long training stood still for it, and when it was on disk.
 */
export interface RunCheckpoint {
  step: number;
  life: number;
  at_s: number;
  bytes: number | null;
  written: number | null;
  stall_ns: number | null;
  durable_ns: number | null;
}
/**
 * Steps that were left out, from ``first`` to before ``end``.
 */
export interface RunSkip {
  first: number;
  end: number;
  reason: string;
}
/**
 * A long step, the part that was longer than usual, and the stack that was seen most often, innermost frame first.
 */
export interface RunStall {
  step: number;
  rank: number;
  took_ns: number;
  usual_ns: number;
  part: string;
  line: string;
  stack: string[];
  stack_seen: number;
  stacks: number;
}
/**
 * A column that can be shown as rank by step.
 */
export interface HeatColumn {
  name: string;
  unit: string;
}
/**
 * All curves over the same buckets, each by its first step; exact where a bucket is one step.
 */
export interface CurveSet {
  first: number;
  end: number;
  steps: number[];
  is_exact: boolean;
  curves: RunCurve[];
  left_out: number;
}
/**
 * What one chart shows.
 */
export interface RunCurve {
  name: string;
  title: string;
  unit: "bytes" | "ns" | "number" | "rate" | "share";
  says: string;
  lines: CurveLine[];
}
/**
 * Values by bucket of steps, null where there are none; ``low`` and ``high`` where values of a bucket differ.
 */
export interface CurveLine {
  label: string;
  values: (number | null)[];
  low: (number | null)[] | null;
  high: (number | null)[] | null;
  not_finite: number;
}
/**
 * A column by rank and bucket of steps: the largest value of each.
 */
export interface HeatMap {
  column: string;
  unit: string;
  first: number;
  end: number;
  steps: number[];
  ranks: HeatRow[];
  low: number | null;
  high: number | null;
}
/**
 * One rank.
 */
export interface HeatRow {
  rank: number;
  values: (number | null)[];
}
/**
 * Whether a process of it is there, and a signature that changes when it has written something.
 */
export interface RunState {
  signature: string;
  is_running: boolean;
}
/**
 * The runs below a folder. Those that are ``pending`` are read when it is asked for again; ``left_out`` are not listed.
 */
export interface RunList {
  address: string;
  folder: string;
  runs: ListedRun[];
  pending: number;
  running: number;
  left_out: number;
  took_ms: number;
}
/**
 * A run of a folder: its summary, or why there is none; neither where it was not read yet. ``fields`` are its configuration.
 */
export interface ListedRun {
  name: string;
  address: string;
  summary: RunSummary | null;
  problem: string;
  fields: {
    [k: string]: string;
  };
  curves: string[];
}
/**
 * A run in a few numbers, those of ``penstock report --json``; ``line`` is the first line of the report.
 */
export interface RunSummary {
  name: string;
  address: string;
  state: "ended" | "failed" | "running" | "silent";
  step: number | null;
  loss: number | null;
  ranks: number;
  lives: number;
  incidents: number;
  line: string;
  verdict: "abstains" | "named" | "none";
  wall_ns: number;
  speed: RunSpeed;
  mfu: RunMfu;
  goodput: RunGoodput;
  memory: RunMemory;
}
/**
 * Some shards of a version, from ``start`` on.
 */
export interface ShardPage {
  shards: ShardLine[];
  start: number;
  of: number;
}
/**
 * A shard: ``first`` is the version's row at which it begins, ``copied`` says that rows are read from a copy.
 */
export interface ShardLine {
  name: string;
  rows: number;
  bytes: number;
  digest: string;
  first: number;
  copied: boolean;
}
/**
 * A sample in four stages; ``templated`` is null where tokens are stored.
 */
export interface SampleStagesAnswer {
  source: string;
  origin: OriginFacts;
  raw: StoredRow;
  templated: TemplatedText | null;
  tokens: SampleTokens;
  input: InputStretch[];
}
/**
 * A row of a version as it is stored.
 */
export interface StoredRow {
  command: string;
  data_command: string;
  address: string;
  row: number;
  shard: string;
  place: number;
  byte_range: [number, number] | null;
  fields: FieldPreview[];
}
/**
 * What the tokenizer was given; ``problem`` says why a template could not be rendered.
 */
export interface TemplatedText {
  characters: number;
  pieces: TemplatedPiece[];
  problem: string;
}
/**
 * A stretch of templated text, by characters: who says it, and whether it counts in the loss.
 */
export interface TemplatedPiece {
  start: number;
  stop: number;
  text: string;
  role: string;
  trained: boolean;
}
/**
 * The tokens of a sample: ``joined`` shows characters that several share whole; ``spans`` are the characters that each was made of.
 */
export interface SampleTokens {
  ids: number[];
  texts: string[];
  joined: string[];
  kinds: string[];
  spans: [number, number][] | null;
  cut: string;
}
/**
 * Where a batch has some tokens of a sample.
 */
export interface InputStretch {
  row: number;
  row_span: number[];
  token_span: number[];
  loss: number;
}
/**
 * Recipes and runs below the folders of the server; ``reasons`` says what was left out, and how many of each.
 */
export interface StreamList {
  recipes: string[];
  runs: string[];
  roots: string[];
  left_out: number;
  reasons: {
    [k: string]: number;
  };
}
/**
 * The same, and the names under which the training loop shows arrays.
 */
export interface RunTaps {
  ranks: RankTap[];
  unequal: UnequalRanks[];
  shown: string[];
}
/**
 * A rank's batch, compared with the one rebuilt here.
 */
export interface RankTap {
  name: string;
  pid: number;
  alive: boolean | null;
  lane: string;
  step: number | null;
  digest: string;
  age_s: number | null;
  rebuilt: string;
  equal: boolean;
}
/**
 * Everything about one token: beside the facts its values in all columns of the batch, by name.
 *
 *     Columns that only some recipes have are not declared; a number that JSON lacks travels as text.
 */
export interface TokenDetail {
  row: number;
  token: number;
  id: number;
  text: string;
  bytes: string | null;
  kind: string;
  origin: OriginFacts[];
  address?: string;
  tokens: number;
  segments?: number;
  positions?: number;
  loss_mask?: number;
  sources: number;
  kinds: number;
  [k: string]: unknown;
}
/**
 * A version without its rows.
 */
export interface VersionDetail {
  address: string;
  number: number;
  digest: string;
  format: string;
  rows: number;
  bytes: number;
  shards: number;
  fields: number;
  created: string;
  note: string;
  derived: boolean;
  name: string;
  tags: string[];
  owner: string;
  licence: string;
  roots: string[];
  skipped: number;
  schema: SchemaField[];
  fields_left_out: number;
  command: string;
  rows_command: string;
}
/**
 * A field of a version's schema.
 */
export interface SchemaField {
  name: string;
  kind: string;
  optional: boolean;
}
/**
 * All versions of a dataset, newest first.
 */
export interface VersionList {
  name: string;
  versions: VersionSummary[];
  tags: {
    [k: string]: number;
  };
  left_out: number;
  command: string;
}
/**
 * A version in one line.
 */
export interface VersionSummary {
  address: string;
  number: number;
  digest: string;
  format: string;
  rows: number;
  bytes: number;
  shards: number;
  fields: number;
  created: string;
  note: string;
  derived: boolean;
}
