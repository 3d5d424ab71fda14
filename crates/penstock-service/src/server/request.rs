//! What a request asks for, read strictly: known names, whole numbers, nothing twice.

use std::time::Duration;

use hyper::HeaderMap;

use crate::lane::Lane;
use crate::problem::Problem;

/// Of a query.
const PARTS_MAX: usize = 8;

/// The names and texts of a query.
pub(super) struct Query<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Query<'a> {
    pub(super) fn read(text: Option<&'a str>, known: &[&str]) -> Result<Self, Problem> {
        let mut parts: Vec<(&str, &str)> = Vec::new();
        for part in text.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if !known.contains(&name) || parts.len() == PARTS_MAX {
                return Err(Problem::invalid(400, &format!("{name:.32} is not asked for here")));
            }
            if parts.iter().any(|(other, _)| *other == name) {
                return Err(Problem::invalid(400, &format!("{name} is given twice")));
            }
            parts.push((name, value));
        }
        Ok(Self(parts))
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }

    pub(super) fn number(&self, name: &str) -> Result<u64, Problem> {
        let text = self.text(name).ok_or_else(|| Problem::invalid(400, &format!("{name} is missing")))?;
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // Steps and positions are numbers of 63 bits everywhere else.
        let number = text.parse::<u64>().ok().filter(|number| digits && *number < 1 << 63);
        number.ok_or_else(|| Problem::invalid(400, &format!("{name} is {text:.32?}, which is no number")))
    }

    pub(super) fn lane(&self) -> Result<Lane, Problem> {
        let lane = Lane { number: self.number("lane")?, of: self.number("of")? };
        if lane.number >= lane.of {
            return Err(Problem::invalid(400, &format!("there is no lane {lane}")));
        }
        Ok(lane)
    }
}

/// How long the client waits for an answer.
pub(super) fn patience(headers: &HeaderMap, most: Duration) -> Duration {
    let header = headers.get("penstock-patience-ms").and_then(|value| value.to_str().ok());
    header.and_then(|text| text.parse().ok()).map_or(most, Duration::from_millis).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_plain_and_small_enough() {
        let query = |text: &'static str| Query::read(Some(text), &["lane", "of", "step"]);
        let good = query("lane=3&of=8&step=41207").unwrap();
        assert_eq!((good.lane(), good.number("step")), (Ok(Lane { number: 3, of: 8 }), Ok(41207)));
        for bad in ["lane=8&of=8", "lane=0&of=0", "lane=-1&of=8", "lane=&of=1", "lane=%31&of=2", "of=1"] {
            assert!(query(bad).unwrap().lane().is_err(), "{bad}");
        }
        for bad in ["step=9223372036854775808", "step=99999999999999999999999", "step=1e3", "step=+1"] {
            assert!(query(bad).unwrap().number("step").is_err(), "{bad}");
        }
        assert!(query("lane=1&lane=2").is_err() && query("token=1").is_err());
    }
}
