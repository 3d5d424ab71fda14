// How the bundle is built: into the Python package, with relative addresses so that it works under
// any proxy prefix, and with nothing inlined so that the content security policy can stay strict.

import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../python/penstock/view/web/static",
    emptyOutDir: true,
    target: "es2022",
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // `npm run dev` shows the pages from source and asks a running `penstock web` for the data.
  server: { proxy: { "/api": "http://127.0.0.1:8090" } },
  // What needs a browser is tested in one (tests/view); here is what only computes.
  test: { include: ["test/**/*.test.ts"], globalSetup: "test/server.js", isolate: false, watch: false },
});
