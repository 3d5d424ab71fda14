//! From a URL and the usual settings to a store: which provider, which bucket, whose credentials.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, Certificate, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};

use crate::watched::Connector;
use crate::{Limits, profiles};

/// Names a file of certificates (PEM) that are trusted beside the system's, whatever the store; as an option without the prefix.
const CA_BUNDLE: &str = "PENSTOCK_STORE_CA_BUNDLE";

/// Where a root is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// `s3`, `gs`, `az`, `http`, `https`, `memory`.
    pub scheme: String,
    /// The bucket, container or host.
    pub bucket: String,
    /// Names begin with this; empty, or without slashes at its ends.
    pub prefix: String,
}

impl Place {
    /// Takes a URL apart. Which schemes there are is checked when a store is made.
    pub fn parse(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        (!bucket.is_empty()).then(|| Self {
            scheme: scheme.to_owned(),
            bucket: bucket.to_owned(),
            prefix: prefix.trim_matches('/').to_owned(),
        })
    }

    /// What a name below the root is called by the store.
    pub fn key(&self, name: &str) -> String {
        match (self.prefix.as_str(), name) {
            ("", name) => name.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, name) => format!("{prefix}/{name}"),
        }
    }
}

/// What was said about a store: by the caller, and by the environment when the client was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Options {
    /// By the caller; counts more than everything else. Names as in the environment, in lower case.
    pub given: BTreeMap<String, String>,
    /// Variables that providers know, and where home is.
    pub environment: BTreeMap<String, String>,
}

impl Options {
    /// These, and the environment as it is now.
    pub fn new(given: impl IntoIterator<Item = (String, String)>) -> Self {
        let known = |name: &str| {
            [CA_BUNDLE, "HOME"].contains(&name)
                || ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| name.starts_with(prefix))
        };
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| known(name))
            .collect();
        let given = given.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        Self { given, environment }
    }

    /// All settings for a provider, the files of profiles read now.
    pub(crate) fn resolve(&self, scheme: &str) -> Result<BTreeMap<String, String>, String> {
        let prefix = match scheme {
            "s3" => "AWS_",
            "gs" => "GOOGLE_",
            "az" => "AZURE_",
            _ => return Ok(self.with_bundle(self.given.clone())),
        };
        let said = self.environment.iter().filter(|(name, _)| name.starts_with(prefix));
        let mut all: BTreeMap<String, String> =
            said.map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
        all.extend(self.given.clone());
        if scheme == "s3" {
            let own_keys = all.contains_key("aws_access_key_id");
            for (name, value) in profiles::read(&self.environment)? {
                // Keys belong together: a token of the profile does not fit keys of the environment.
                let key = name.starts_with("aws_");
                let name = if key { name } else { format!("aws_{name}") };
                let foreign = key && own_keys;
                if !foreign && !overruled(&all, &name) {
                    all.insert(name, value);
                }
            }
        }
        Ok(self.with_bundle(all))
    }

    /// Adds the file of certificates that the environment names: ours, or the provider's own variable.
    fn with_bundle(&self, mut all: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let named = self.environment.get(CA_BUNDLE).or_else(|| all.get("aws_ca_bundle")).cloned();
        if let Some(file) = named.filter(|file| !file.is_empty()) {
            all.entry("ca_bundle".to_owned()).or_insert(file);
        }
        all
    }
}

/// Whether the environment or the caller said the same under one of its names.
fn overruled(all: &BTreeMap<String, String>, name: &str) -> bool {
    let names: &[&str] = match name {
        "aws_region" => &["aws_region", "aws_default_region", "region", "default_region"],
        "aws_endpoint_url" => {
            &["aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint", "aws_endpoint_url_s3"]
        }
        _ => &[name],
    };
    names.iter().any(|name| all.contains_key(*name))
}

/// A store, with its uploads in parts and its listings in pages where it has them.
pub(crate) struct Stores {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) parts: Option<Arc<dyn MultipartStore>>,
    /// Listing by the beginning of a key, where the store has it.
    pub(crate) pages: Option<Arc<dyn PaginatedListStore>>,
    /// What it was made from.
    pub(crate) settings: BTreeMap<String, String>,
}

impl Stores {
    fn all<T>(store: T, settings: BTreeMap<String, String>) -> Self
    where
        T: ObjectStore + MultipartStore + PaginatedListStore,
    {
        let store = Arc::new(store);
        Self { objects: store.clone(), parts: Some(store.clone()), pages: Some(store), settings }
    }
}

/// Makes a store. Nothing is contacted.
pub(crate) fn make(
    place: &Place,
    settings: BTreeMap<String, String>,
    limits: &Limits,
) -> Result<Stores, String> {
    // Another part of the program may have brought other cryptography first; either is good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let words = |error: object_store::Error| error.to_string();
    let client = client(limits, settings.get("ca_bundle"))?;
    match place.scheme.as_str() {
        "s3" => {
            let builder = AmazonS3Builder::new().with_client_options(client).with_retry(no_retries());
            let builder = configured(builder, &settings, |builder, key: AmazonS3ConfigKey, value| {
                builder.with_config(key, value)
            });
            let builder = builder.with_bucket_name(&place.bucket).with_http_connector(Connector);
            Ok(Stores::all(builder.build().map_err(words)?, settings))
        }
        "gs" => {
            let builder =
                GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(no_retries());
            let builder = configured(builder, &settings, |builder, key: GoogleConfigKey, value| {
                builder.with_config(key, value)
            });
            let builder = builder.with_bucket_name(&place.bucket).with_http_connector(Connector);
            Ok(Stores::all(builder.build().map_err(words)?, settings))
        }
        "az" => {
            let builder = MicrosoftAzureBuilder::new().with_client_options(client).with_retry(no_retries());
            let builder = configured(builder, &settings, |builder, key: AzureConfigKey, value| {
                builder.with_config(key, value)
            });
            let builder = builder.with_container_name(&place.bucket).with_http_connector(Connector);
            Ok(Stores::all(builder.build().map_err(words)?, settings))
        }
        "http" | "https" => {
            let builder = HttpBuilder::new().with_client_options(client).with_retry(no_retries());
            let builder = configured(builder, &settings, |builder, key: ClientConfigKey, value| {
                builder.with_config(key, value)
            });
            let url = format!("{}://{}", place.scheme, place.bucket);
            let store = builder.with_url(url).with_http_connector(Connector).build().map_err(words)?;
            Ok(Stores { objects: Arc::new(store), parts: None, pages: None, settings })
        }
        "memory" => {
            let store = memory(&place.bucket);
            Ok(Stores { objects: store.clone(), parts: Some(store), pages: None, settings })
        }
        other => {
            Err(format!("there is no store for `{other}://`; known are s3, gs, az, http, https and memory"))
        }
    }
}

/// Applies every setting whose name the provider knows. Others are meant for other programs.
fn configured<B, K: FromStr>(
    builder: B,
    settings: &BTreeMap<String, String>,
    apply: impl Fn(B, K, String) -> B,
) -> B {
    settings.iter().fold(builder, |builder, (name, value)| match name.parse() {
        Ok(key) => apply(builder, key, value.clone()),
        Err(_) => builder,
    })
}

fn client(limits: &Limits, ca_bundle: Option<&String>) -> Result<ClientOptions, String> {
    let options = ClientOptions::new()
        .with_allow_http(true)
        .with_connect_timeout(limits.connect)
        .with_read_timeout(limits.read)
        // Ours counts the tries together.
        .with_timeout_disabled()
        .with_pool_max_idle_per_host(limits.requests_max);
    let Some(file) = ca_bundle else { return Ok(options) };
    let unusable = |reason: String| format!("the certificates in `{file}` cannot be used: {reason}");
    let bundle = std::fs::read(file).map_err(|error| unusable(error.to_string()))?;
    let certificates = Certificate::from_pem_bundle(&bundle).map_err(|error| unusable(error.to_string()))?;
    if certificates.is_empty() {
        return Err(unusable("it holds none".into()));
    }
    Ok(certificates.into_iter().fold(options, ClientOptions::with_root_certificate))
}

/// Retries are ours: they share a budget, are counted, and resume where an answer broke off.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, backoff: BackoffConfig::default(), ..RetryConfig::default() }
}

/// A store in memory lives as long as the process and is the same for all who name it.
fn memory(name: &str) -> Arc<InMemory> {
    static STORES: Mutex<BTreeMap<String, Arc<InMemory>>> = Mutex::new(BTreeMap::new());
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(stores.entry(name.to_owned()).or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_url_is_taken_apart_and_names_put_together() {
        let place = Place::parse("s3://bucket/a/b/").unwrap();
        assert_eq!((place.bucket.as_str(), place.prefix.as_str()), ("bucket", "a/b"));
        assert_eq!((place.key("c"), place.key("")), ("a/b/c".into(), "a/b".into()));
        assert_eq!(Place::parse("http://host:80").unwrap().key("c"), "c");
        assert_eq!(Place::parse("s3:///a"), None);
        assert_eq!(Place::parse("plain"), None);
    }

    #[test]
    fn the_caller_counts_more_than_the_environment_and_that_more_than_a_profile() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        let keys = "[default]\naws_access_key_id=P\naws_secret_access_key=P\naws_session_token=P\nregion=p\n";
        std::fs::write(home.path().join(".aws/credentials"), keys).unwrap();
        let home = home.path().to_str().unwrap();
        let profile = Options { given: map(&[]), environment: map(&[("HOME", home), ("AWS_REGION", "e")]) };
        let resolved = profile.resolve("s3").unwrap();
        assert_eq!((resolved["aws_session_token"].as_str(), resolved["aws_region"].as_str()), ("P", "e"));
        let given = Options {
            given: map(&[("aws_access_key_id", "G"), ("aws_secret_access_key", "G")]),
            environment: map(&[("HOME", home), ("AWS_ACCESS_KEY_ID", "E")]),
        };
        let resolved = given.resolve("s3").unwrap();
        assert_eq!(resolved["aws_access_key_id"], "G");
        assert!(!resolved.contains_key("aws_session_token"), "a foreign token is not mixed in");
    }

    #[test]
    fn certificates_are_named_by_the_caller_the_environment_or_the_provider() {
        let named = |given: &[(&str, &str)], environment: &[(&str, &str)], scheme: &str| {
            let options = Options { given: map(given), environment: map(environment) };
            options.resolve(scheme).unwrap().get("ca_bundle").cloned()
        };
        let ours = [("PENSTOCK_STORE_CA_BUNDLE", "ours"), ("AWS_CA_BUNDLE", "theirs")];
        assert_eq!(named(&[], &ours, "https").as_deref(), Some("ours"));
        assert_eq!(named(&[("ca_bundle", "given")], &ours, "s3").as_deref(), Some("given"));
        assert_eq!(named(&[], &ours[1..], "s3").as_deref(), Some("theirs"));
        assert_eq!(named(&[], &ours[1..], "https"), None);
        let place = Place::parse("https://host").unwrap();
        let refused = make(&place, map(&[("ca_bundle", "/gone.pem")]), &Limits::default()).err().unwrap();
        assert!(refused.contains("/gone.pem"));
    }

    #[test]
    fn an_unknown_scheme_is_named() {
        let place = Place::parse("ftp://x").unwrap();
        assert!(make(&place, BTreeMap::new(), &Limits::default()).err().unwrap().contains("ftp"));
    }
}
