//! `v/ops/mcp/*`: the servers of the Model Context Protocol whose tools agents use, and approval of their changes. The
//! tools themselves are published as `v/ops/mcp/<server>/<tool>`.

use crate::domain::authority::ResourcePath;
use crate::domain::ids::AgentId;
use crate::domain::lattice::Namespace;
use crate::domain::mcp::name::{GROUP, ServerName, TOOLS_CALL, TOOLS_CALL_ALIAS};
use crate::domain::secret::PlainSecret;
use crate::venue::mcp::{self, NamedServer, find_server};
use crate::venue::mcp_login::LoginAnswer;
use crate::venue::operation::{Effect, Invocation, Need, OpError, OpOutput, Operation, RegisteredOperation, operation};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Covia's names for a call of a tool, and for the list of a server's tools.
pub const ALIASES: [(&str, &str); 2] =
    [(TOOLS_CALL_ALIAS, TOOLS_CALL), ("v/ops/mcp/tools/list", "v/ops/mcp/tools-list")];

/// Returns the operations of this group.
pub fn operations() -> Vec<RegisteredOperation> {
    vec![
        operation::<ListServers>(),
        operation::<ShowServer>(),
        operation::<ListTools>(),
        operation::<CallTool>(),
        operation::<RefreshServer>(),
        operation::<ApproveChange>(),
        operation::<BeginLogin>(),
        operation::<FinishLogin>(),
        operation::<Logout>(),
    ]
}

/// Returns the place of a server in the catalogue, whose tools are below it.
fn server_place(server: &ServerName) -> ResourcePath {
    ResourcePath::at_keys(Namespace::Venue, ["ops", GROUP, server.as_str()])
}

/// Returns what a caller needs at a place of the catalogue. What an agent declares is a part of its configuration.
pub(super) fn needs_at(ability: &'static str, place: ResourcePath, agent: Option<&AgentId>) -> Vec<Need> {
    let of_agent = agent.map(|agent| Need::new("crud/read", ResourcePath::agent(agent)));
    std::iter::once(Need::new(ability, place)).chain(of_agent).collect()
}

/// List the servers of the Model Context Protocol that the venue names, and with `agent` those that the agent declares.
#[derive(Deserialize, JsonSchema)]
struct ListServers {
    /// agent whose own servers are listed too
    agent: Option<AgentId>,
}

impl Operation for ListServers {
    const PATH: &'static str = "v/ops/mcp/servers";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("crud/read", ResourcePath::at_keys(Namespace::Venue, ["ops", GROUP]), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Ok(OpOutput::of(&mcp::list_servers(call.venue, &call.caller.owner, self.agent.as_ref()).await?))
    }
}

/// Show a server of the Model Context Protocol: its approved tools, those that can't be used, and a change that waits.
#[derive(Deserialize, JsonSchema)]
struct ShowServer {
    #[schemars(with = "String")]
    server: ServerName,
    /// agent that declares it; absent: a server of the venue
    agent: Option<AgentId>,
}

impl Operation for ShowServer {
    const PATH: &'static str = "v/ops/mcp/server";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("crud/read", server_place(&self.server), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let found = find_server(call.venue, &call.caller.owner, self.agent.as_ref(), &self.server).await?;
        Ok(OpOutput::of(&mcp::show_server(call.venue, &found).await?))
    }
}

/// List the approved tools of a server of the Model Context Protocol. Call one as `v/ops/mcp/<server>/<tool>`.
#[derive(Deserialize, JsonSchema)]
struct ListTools {
    #[schemars(with = "String")]
    server: ServerName,
    /// agent that declares it; absent: a server of the venue
    agent: Option<AgentId>,
}

impl Operation for ListTools {
    const PATH: &'static str = "v/ops/mcp/tools-list";
    const EFFECT: Effect = Effect::Read;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("crud/read", server_place(&self.server), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let found = find_server(call.venue, &call.caller.owner, self.agent.as_ref(), &self.server).await?;
        Ok(OpOutput::of(&mcp::list_tools(call.venue, &found).await?))
    }
}

/// Call a tool of a server of the Model Context Protocol, as Covia's clients do. It is the same as a call of
/// `v/ops/mcp/<server>/<tool>` with the `arguments`.
#[expect(dead_code, reason = "a call becomes one of the tool's own operation before it is parsed")]
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CallTool {
    #[schemars(with = "String")]
    server: ServerName,
    tool_name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl Operation for CallTool {
    const PATH: &'static str = TOOLS_CALL;
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Need::only("invoke", server_place(&self.server))
    }

    async fn run(self, _call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        Err(OpError::Invalid(format!("`{TOOLS_CALL}` stands for the operation of a tool, and runs nothing itself")))
    }
}

/// Ask a server of the Model Context Protocol for its tools now. What differs from the approved ones waits for approval.
#[derive(Deserialize, JsonSchema)]
struct RefreshServer {
    #[schemars(with = "String")]
    server: ServerName,
    /// agent that declares it; absent: a server of the venue
    agent: Option<AgentId>,
}

impl Operation for RefreshServer {
    const PATH: &'static str = "v/ops/mcp/refresh";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("crud/read", server_place(&self.server), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        call.refuse_agents::<Self>("people")?;
        let found = find_server(call.venue, &call.caller.owner, self.agent.as_ref(), &self.server).await?;
        Ok(OpOutput::of(&mcp::refresh(call.venue, &found).await?))
    }
}

/// Approve the change of a server's tools, as it was shown. From the next turn on its tools are used as they are now.
#[derive(Deserialize, JsonSchema)]
struct ApproveChange {
    #[schemars(with = "String")]
    server: ServerName,
    /// agent that declares it; absent: a server of the venue
    agent: Option<AgentId>,
    /// hash of the change, as `mcp/server` shows it; refused when it is another one by now
    change: String,
}

/// Returns the server about which a person decides: no agent does, and only operators do where all owners share it.
async fn find_own_server<O: Operation>(
    call: &Invocation<'_>,
    server: &ServerName,
    agent: Option<&AgentId>,
) -> Result<NamedServer, OpError> {
    call.refuse_agents::<O>("people")?;
    let found = find_server(call.venue, &call.caller.owner, agent, server).await?;
    if found.is_shared() {
        call.require_operator::<O>(", where all owners share the server")?;
    }
    Ok(found)
}

impl Operation for ApproveChange {
    const PATH: &'static str = "v/ops/mcp/approve";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(needs_at("mcp/approve", server_place(&self.server), self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let found = find_own_server::<Self>(call, &self.server, self.agent.as_ref()).await?;
        Ok(OpOutput::of(&mcp::approve(call.venue, &found, &self.change, &call.caller.name).await?))
    }
}

/// Begin a login at a server of the Model Context Protocol: returns the page that a person opens. `trellis mcp login` does
/// this, waits for the answer and ends the login with it.
#[derive(Deserialize, JsonSchema)]
struct BeginLogin {
    #[schemars(with = "String")]
    server: ServerName,
    /// agent that declares it; absent: a server of the venue
    agent: Option<AgentId>,
    /// page of the person's own machine to which the login comes back: `http://127.0.0.1:PORT/callback`
    redirect: String,
}

/// Returns what a caller needs to log in at a server.
fn login_needs(server: &ServerName, agent: Option<&AgentId>) -> Vec<Need> {
    needs_at("mcp/login", server_place(server), agent)
}

impl Operation for BeginLogin {
    const PATH: &'static str = "v/ops/mcp/login";
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(login_needs(&self.server, self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let found = find_own_server::<Self>(call, &self.server, self.agent.as_ref()).await?;
        Ok(OpOutput::of(&mcp::begin_login(call.venue, &found, &call.caller.owner, &self.redirect).await?))
    }
}

/// End a login at a server of the Model Context Protocol with the answer of its login server, which counts once.
#[derive(Deserialize, JsonSchema)]
struct FinishLogin {
    #[schemars(with = "String")]
    server: ServerName,
    /// agent that declares it; absent: a server of the venue
    agent: Option<AgentId>,
    /// `state` of the answer
    state: String,
    /// `code` of the answer; absent with an `error`
    #[schemars(with = "Option<String>", extend("writeOnly" = true))]
    code: Option<PlainSecret>,
    /// `iss` of the answer
    iss: Option<String>,
    /// `error` and `error_description` of the answer
    error: Option<String>,
}

impl Operation for FinishLogin {
    const PATH: &'static str = "v/ops/mcp/login-finish";
    const EFFECT: Effect = Effect::Once;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(login_needs(&self.server, self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let Self { server, agent, state, code, iss, error } = self;
        let found = find_own_server::<Self>(call, &server, agent.as_ref()).await?;
        let answer = LoginAnswer { state, code, iss, error };
        let caller = call.caller;
        Ok(OpOutput::of(&mcp::finish_login(call.venue, &found, &caller.owner, &caller.name, &answer).await?))
    }
}

/// End the login at a server of the Model Context Protocol: its tokens are deleted here.
#[derive(Deserialize, JsonSchema)]
struct Logout {
    #[schemars(with = "String")]
    server: ServerName,
    /// agent that declares it; absent: a server of the venue
    agent: Option<AgentId>,
}

impl Operation for Logout {
    const PATH: &'static str = "v/ops/mcp/logout";
    const EFFECT: Effect = Effect::Idempotent;

    fn needs(&self) -> Result<Vec<Need>, OpError> {
        Ok(login_needs(&self.server, self.agent.as_ref()))
    }

    async fn run(self, call: &Invocation<'_>) -> Result<OpOutput, OpError> {
        let found = find_own_server::<Self>(call, &self.server, self.agent.as_ref()).await?;
        Ok(OpOutput::of(&mcp::logout(call.venue, &found).await?))
    }
}
