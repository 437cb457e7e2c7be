//! Configuration: defaults, file, environment and flags become one validated value, once.

pub mod advice;
mod check;
pub mod files;
pub mod url;
mod layers;
mod load;
mod mask;
pub mod position;
pub mod proxy;
mod settings;
pub mod yaml;

pub use layers::{ConfigError, ConfigErrors, DEFAULTS, SettingOrigin, ShownKey};
pub use load::LoadedConfig;
pub use mask::{mask_url, mask_value};
pub use settings::{
    A2aConfig, AuthConfig, AuthMode, BusConfig, BusUrl, CatalogConfig, Config, DidKeys, EndpointConfig, GrantsConfig,
    HttpClientConfig, HttpConfig, LogConfig, LogFormat, McpConfig, ModelsConfig, NotificationsConfig, ResourceKind,
    ResourcesConfig, RetryConfig, SecretsConfig, SettingFileError, StoreConfig, StoreUrl, TelemetryConfig, TlsFiles,
    VenueA2aAgent, VenueConfig, VenueMcpServer, WebhookConfig, WorkerConfig,
};

#[cfg(test)]
mod tests;
