// The entry: applies the stored theme before anything is drawn, then mounts the shell.

import { render } from "preact";

import "./style/base.css";
import "./style/shell.css";
import "./style/part.css";
import "./style/page.css";
import { Shell } from "./shell";
import { applyStoredTheme } from "./theme";

applyStoredTheme();
const root = document.getElementById("app");
if (root !== null) render(<Shell />, root);
