// What stands at an address: a version or a row of it, a run, a folder of runs, or a batch of a recipe or a run.

import { isStream, parsePlace } from "../batch/place";
import { splitRow } from "../data/address";
import { isFolderOfRuns, isWholeRun } from "../run/address";
import { BatchPage } from "./batch";
import { RunPage } from "./run";
import { RunsPage } from "./runs";
import { VersionPage } from "./version";

export function AddressPage(props: { address: string; query: ReadonlyMap<string, string> }) {
  const { address, query } = props;
  if (isFolderOfRuns(address)) return <RunsPage key={address} address={address} query={query} />;
  if (isWholeRun(address) && query.get("view") !== "batch") return <RunPage key={address} address={address} query={query} />;
  if (isStream(address)) return <BatchPage key={parsePlace(address).stream} address={address} query={query} />;
  return <VersionPage key={splitRow(address)[0]} address={address} query={query} />;
}
