// Client command of the protocol's conformance suite: hands the suite's server over to the test, which answers when it
// has used it.

const [test, url] = process.argv.slice(2);
const { MCP_CONFORMANCE_CONTEXT = "null", MCP_CONFORMANCE_PROTOCOL_VERSION: revision } = process.env;
const body = JSON.stringify({ url, revision, context: JSON.parse(MCP_CONFORMANCE_CONTEXT) });
const answer = await fetch(test, { method: "POST", body });
console.log(await answer.text());
process.exit(answer.ok ? 0 : 1);
