"""How secrets are called, and how short one may be; the same as in ``crates/penstock-process/src/job/redaction.rs``."""

#: Names that say that the value is a secret.
SECRET_NAMES = (
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "API_KEY",
    "APIKEY",
    "ACCESS_KEY",
    "PRIVATE_KEY",
    "AUTH",
)
#: Shorter values would be found everywhere.
SECRET_BYTES_MIN = 8
