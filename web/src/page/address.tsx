// What stands at an address: a version or a row of it, or a batch of a recipe or a run.

import { VersionPage } from "./version";

export function AddressPage(props: { address: string; query: ReadonlyMap<string, string> }) {
  const { address, query } = props;
  const version = address.replace(/\/row\/\d+$/, "");
  return <VersionPage key={version} address={address} query={query} />;
}
