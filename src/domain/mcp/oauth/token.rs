//! Tokens as login servers give them: which can be used, and for how long (RFC 6749).

use super::scope::parse_scopes;
use crate::decode;
use crate::limits::{MCP_TOKEN_BYTES, MCP_TOKEN_LIFE};
use crate::secret::PlainSecret;
use crate::visible::quote_foreign;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Longest text of a refusal that is shown.
const SHOWN_CHARS: usize = 300;

/// Tokens of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGrant {
    /// Token that goes with requests.
    pub access: PlainSecret,
    /// Token that renews it.
    pub refresh: Option<PlainSecret>,
    /// Life of the token; `None` if the login server doesn't say.
    pub life: Option<Duration>,
    /// Scopes that were given, where they differ from those that were asked for.
    pub scopes: Option<Vec<String>>,
}

/// Why there is no token. The texts show none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// The login server refuses with a code of the protocol.
    #[error("the login server refuses: {}", quote_foreign(.text))]
    Refused {
        /// Code of the error.
        code: String,
        /// Code and description, cut.
        text: String,
    },
    /// The answer has another status.
    #[error("the login server answered with status {status}")]
    Status {
        /// Status of HTTP.
        status: u16,
    },
    /// The answer has no usable token.
    #[error("the login server's answer can't be used: {reason}")]
    Answer {
        /// Reason of the failure.
        reason: String,
    },
}

impl TokenRefusal {
    /// Whether what was shown for the token counts no longer.
    pub fn is_of_grant(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "invalid_grant")
    }
}

/// An answer with tokens.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: PlainText,
    token_type: String,
    #[serde(default)]
    expires_in: Value,
    refresh_token: Option<PlainText>,
    scope: Option<String>,
}

/// A token that is still to be checked.
#[derive(Deserialize)]
#[serde(transparent)]
struct PlainText(String);

#[derive(Deserialize)]
struct RefusalAnswer {
    error: String,
    error_description: Option<String>,
}

impl PlainText {
    /// Returns the token. One with blanks or line breaks would end its header.
    fn check(self, key: &'static str) -> Result<PlainSecret, TokenRefusal> {
        let wrong = |reason: String| TokenRefusal::Answer { reason: format!("`{key}`: {reason}") };
        if self.0.len() > MCP_TOKEN_BYTES {
            return Err(wrong(format!("expected at most {MCP_TOKEN_BYTES} bytes, got {}", self.0.len())));
        }
        if !self.0.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("expected printable ASCII characters without blanks".to_owned()));
        }
        PlainSecret::new(self.0).map_err(|error| wrong(error.to_string()))
    }
}

impl TokenGrant {
    /// Reads the answer of a login server.
    pub fn read(status: u16, body: &[u8]) -> Result<Self, TokenRefusal> {
        let value = decode::lenient_json(body);
        if status != 200 {
            let refusal = value.and_then(decode::into_type::<RefusalAnswer>);
            return Err(refusal.map_or(TokenRefusal::Status { status }, RefusalAnswer::show));
        }
        let wrong = |reason: &dyn std::fmt::Display| TokenRefusal::Answer { reason: reason.to_string() };
        // An error of the decoder shows no value; what it says of a map's keys is cut elsewhere.
        let answer: TokenAnswer = value.and_then(decode::into_type).map_err(|error| wrong(&error))?;
        if !answer.token_type.eq_ignore_ascii_case("bearer") {
            let found = quote_foreign(&answer.token_type);
            return Err(wrong(&format!("`token_type`: expected `Bearer`, got {found}")));
        }
        let scopes = answer.scope.as_deref().map(parse_scopes).transpose();
        let scopes = scopes.map_err(|error| wrong(&format!("`scope`: {error}")))?;
        let access = answer.access_token.check("access_token")?;
        let refresh = answer.refresh_token.filter(|token| !token.0.is_empty());
        let refresh = refresh.map(|token| token.check("refresh_token")).transpose()?;
        Ok(Self { access, refresh, life: read_life(&answer.expires_in), scopes })
    }
}

impl RefusalAnswer {
    fn show(self) -> TokenRefusal {
        let about = self.error_description.map(|text| format!(": {text}")).unwrap_or_default();
        let text: String = format!("{}{about}", self.error).chars().take(SHOWN_CHARS).collect();
        TokenRefusal::Refused { code: self.error, text }
    }
}

/// Reads seconds, which some login servers write as a text; at most [`MCP_TOKEN_LIFE`].
fn read_life(seconds: &Value) -> Option<Duration> {
    let seconds = match seconds {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => text.parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    if seconds.is_nan() {
        return None;
    }
    Some(Duration::from_secs_f64(seconds.clamp(0.0, MCP_TOKEN_LIFE.as_secs_f64())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(status: u16, body: &Value) -> Result<TokenGrant, String> {
        TokenGrant::read(status, body.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    fn life(seconds: &Value) -> Option<u64> {
        let body = json!({"access_token": "token-1234", "token_type": "bearer", "expires_in": seconds});
        read(200, &body).unwrap().life.map(|life| life.as_secs())
    }

    #[test]
    fn a_life_is_bounded_whatever_it_is() {
        let most = MCP_TOKEN_LIFE.as_secs();
        for (seconds, expected) in [
            (json!(3600), Some(3600)),
            (json!("60"), Some(60)),
            (json!(1.5), Some(1)),
            (json!(1_000_000_000_000_000_000_u64), Some(most)),
            (json!(1e300), Some(most)),
            (json!(-5), Some(0)),
            (json!("soon"), None),
            (json!("NaN"), None),
            (json!(null), None),
            (json!([1]), None),
        ] {
            assert_eq!(life(&seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn only_usable_tokens_are_taken() {
        let token = |key: &str, value: Value| {
            let mut body = json!({"access_token": "token-1234", "token_type": "Bearer"});
            body[key] = value;
            read(200, &body)
        };
        let good = token("scope", json!("a b")).unwrap();
        assert_eq!((good.access.reveal(), good.scopes), ("token-1234", Some(vec!["a".to_owned(), "b".to_owned()])));
        assert_eq!(token("refresh_token", json!("")).unwrap().refresh, None);
        for (key, value, part) in [
            ("access_token", json!("line\r\nX-Evil: 1"), "`access_token`: expected printable"),
            ("access_token", json!("with blank"), "`access_token`: expected printable"),
            ("access_token", json!("é2345678"), "`access_token`: expected printable"),
            ("access_token", json!("short"), "of at least"),
            ("access_token", json!("x".repeat(20_000)), "expected at most 8192 bytes"),
            ("access_token", json!(1), "access_token"),
            ("refresh_token", json!("line\nbreak"), "`refresh_token`: expected printable"),
            ("token_type", json!("DPoP"), "expected `Bearer`"),
            ("scope", json!("x".repeat(1 << 20)), "`scope`: expected at most"),
        ] {
            let error = token(key, value).unwrap_err();
            assert!(error.contains(part) && !error.contains("X-Evil"), "{key}: {error}");
        }
    }

    #[test]
    fn a_refusal_is_shown_with_its_code() {
        let body = json!({"error": "invalid_grant", "error_description": "used twice\u{1b}[2J"});
        let refusal = TokenGrant::read(400, body.to_string().as_bytes()).unwrap_err();
        assert!(refusal.is_of_grant() && !refusal.to_string().contains('\u{1b}'), "{refusal}");
        assert_eq!(read(502, &json!("x")).unwrap_err(), "the login server answered with status 502");
        let other = TokenGrant::read(400, br#"{"error": "invalid_client"}"#).unwrap_err();
        assert!(!other.is_of_grant());
    }
}
