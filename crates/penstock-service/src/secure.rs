//! Certificates and keys, from files to what TLS needs.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::ServeError;

fn problem(path: &Path, reason: impl std::fmt::Display) -> ServeError {
    ServeError::Secure { path: path.display().to_string(), reason: reason.to_string() }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|reason| problem(path, reason))?;
    let chain = read.collect::<Result<Vec<_>, _>>().map_err(|reason| problem(path, reason))?;
    if chain.is_empty() {
        return Err(problem(path, "there is no certificate in it"));
    }
    Ok(chain)
}

/// What a server needs: its certificates, and the key of the first.
pub fn server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, ServeError> {
    let chain = certificates(certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|reason| problem(key, reason))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|reason| problem(certificate, reason))?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .map_err(|reason| problem(certificate, reason))?;
    Ok(Arc::new(config))
}

/// What a client needs: whom it trusts. Without a file, whom the system trusts.
pub fn client_config(authorities: Option<&Path>) -> Result<Arc<ClientConfig>, ServeError> {
    let mut roots = RootCertStore::empty();
    let place = authorities.unwrap_or(Path::new("the system's certificates"));
    let trusted = match authorities {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(trusted);
    if roots.is_empty() {
        return Err(problem(place, "there is no certificate in it that can be used"));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|reason| problem(place, reason))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
