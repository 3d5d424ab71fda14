// The sections of the navigation. A new one is one line here and one page.

import type { ComponentType } from "preact";

import { DatasetsPage } from "./page/datasets";
import { DiffPage } from "./page/diff";
import { DoctorPage } from "./page/doctor";
import { EventsPage } from "./page/events";
import { HostsPage } from "./page/hosts";
import type { Route } from "./route";

export interface PageProps {
  readonly route: Route;
}

export interface Section {
  /** First segment of its routes; "" is home. */
  readonly name: string;
  readonly title: string;
  /** Pressed after `g`, it goes there. */
  readonly key: string;
  readonly page: ComponentType<PageProps>;
  /** Other first segments that belong to it. */
  readonly also: readonly string[];
}

/** In the order of the navigation. */
export const SECTIONS: readonly Section[] = [
  { name: "", title: "Data", key: "d", page: DatasetsPage, also: ["d", "a"] },
  { name: "diff", title: "Compare", key: "c", page: DiffPage, also: [] },
  { name: "events", title: "Events", key: "e", page: EventsPage, also: [] },
  { name: "hosts", title: "Hosts", key: "h", page: HostsPage, also: [] },
  { name: "doctor", title: "Machine", key: "m", page: DoctorPage, also: [] },
];

export function sectionOf(route: Route): Section | undefined {
  const first = route.path[0] ?? "";
  return SECTIONS.find((one) => one.name === first || one.also.includes(first));
}
