// The entry: lets go of the token in the URL, applies the stored theme before anything is drawn, then mounts the shell.

import { render } from "preact";

import "./style/base.css";
import "./style/shell.css";
import "./style/part.css";
import "./style/page.css";
import "./style/data.css";
import "./style/graph.css";
import "./style/batch.css";
import "./style/tokens.css";
import "./style/stages.css";
import "./style/diff.css";
import "uplot/dist/uPlot.min.css";
import "./style/ledger.css";
import "./style/run.css";
import "./style/runs.css";
import "./style/hosts.css";
import { Shell } from "./shell";
import { applyStoredTheme } from "./theme";

// The server has made a cookie of the token by now; the URL can be copied and kept without it.
if (location.search !== "") history.replaceState(null, "", location.pathname + location.hash);
applyStoredTheme();
const root = document.getElementById("app");
if (root !== null) render(<Shell />, root);
