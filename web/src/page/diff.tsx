// Two addresses side by side.

import type { PageProps } from "../section";

export function DiffPage(props: PageProps) {
  return <h1>Compare {props.route.query.get("a")}</h1>;
}
