// The sections of the navigation. A new one (datasets, batches, runs) is one line here and one page.

import type { ComponentType } from "preact";

import { DoctorPage } from "./page/doctor";
import { EventsPage } from "./page/events";
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
}

export const SECTIONS: readonly Section[] = [
  { name: "", title: "Doctor", key: "d", page: DoctorPage },
  { name: "events", title: "Events", key: "e", page: EventsPage },
];
