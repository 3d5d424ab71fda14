//! Listing a store: everything whose name begins with a text, a page at a time.
//!
//! Object stores list by the beginning of a key, whole parts or not, so a pattern costs only what its beginning matches. A key that
//! cannot be asked for (an empty part, as in `a//b`) would make `object_store` refuse the whole page; [`sort_out`] takes such keys out
//! of the answer before that, and the listing names them.

use std::cell::RefCell;
use std::future::Future;

use futures_util::TryStreamExt;
use object_store::ObjectMeta;
use object_store::list::PaginatedListOptions;
use object_store::path::Path;
use penstock_io::StoreProblem;

use crate::asking::{Ask, Asking};
use crate::client::{Client, Described};
use crate::options::Stores;
use crate::runtime::block_on;
use crate::trouble::{Trouble, judge};
use crate::watched::with_note;

/// Listing goes on for longer than other calls: this many times.
const LISTING: u32 = 10;

/// What a store has below a beginning.
#[derive(Debug, Default)]
pub struct Listing {
    /// Sorted by name.
    pub objects: Vec<Described>,
    /// Names, below the client's root, of objects that no request can name.
    pub unreadable: Vec<String>,
}

tokio::task_local! {
    static UNREADABLE: RefCell<Vec<String>>;
}

/// How far a listing has come; a broken one goes on from here.
#[derive(Default)]
struct Progress {
    found: Vec<ObjectMeta>,
    unreadable: Vec<String>,
    page_token: Option<String>,
    finished: bool,
}

impl Client {
    /// Every object whose name begins with a prefix (whole parts of it), sorted by name.
    pub fn list(&self, prefix: &str) -> Result<Vec<Described>, StoreProblem> {
        let below = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(self.list_beginning(&below)?.objects)
    }

    /// Every object whose name begins with a text, which may end within a part.
    pub fn list_beginning(&self, text: &str) -> Result<Listing, StoreProblem> {
        let total = self.limits().total.saturating_mul(LISTING);
        let mut asking = Asking::new(self, Ask { total, ..Ask::small("list", text, self) });
        let beginning = match (self.prefix(), text) {
            ("", text) => text.to_owned(),
            (prefix, text) => format!("{prefix}/{text}"),
        };
        let mut progress = Progress::default();
        block_on(asking.persist(async |_, stores| {
            while !progress.finished {
                progress.next(stores, &beginning).await?;
            }
            Ok(())
        }))?;
        let skip = if self.prefix().is_empty() { 0 } else { self.prefix().len() + 1 };
        let below = |key: &str| key.starts_with(&beginning).then(|| key[skip..].to_owned());
        let mut objects: Vec<Described> = progress
            .found
            .into_iter()
            .filter_map(|object| below(object.location.as_ref()).map(|name| Described::of(name, object)))
            .collect();
        objects.sort_by(|left, right| left.name.cmp(&right.name));
        let unreadable = progress.unreadable.iter().filter_map(|key| below(key)).collect();
        Ok(Listing { objects, unreadable })
    }
}

impl Progress {
    /// One page more, or all at once where the store has no pages.
    async fn next(&mut self, stores: &Stores, beginning: &str) -> Result<(), Trouble> {
        let ((outcome, note), unreadable) = with_unreadable(with_note(self.ask(stores, beginning))).await;
        outcome.map_err(|error| judge(&error, note))?;
        self.unreadable.extend(unreadable);
        Ok(())
    }

    async fn ask(&mut self, stores: &Stores, beginning: &str) -> object_store::Result<()> {
        let Some(pages) = &stores.pages else {
            let folder = beginning.rsplit_once('/').map_or("", |(folder, _)| folder);
            let folder = Path::parse(folder)?;
            let below = (!folder.as_ref().is_empty()).then_some(&folder);
            self.found = stores.objects.list(below).try_collect().await?;
            self.finished = true;
            return Ok(());
        };
        let options =
            PaginatedListOptions { page_token: self.page_token.clone(), ..PaginatedListOptions::default() };
        let prefix = (!beginning.is_empty()).then_some(beginning);
        let page = pages.list_paginated(prefix, options).await?;
        self.found.extend(page.result.objects);
        self.finished = page.page_token.is_none();
        self.page_token = page.page_token;
        Ok(())
    }
}

/// Runs something that lists; its outcome, and the keys that were sorted out of the answers.
async fn with_unreadable<T>(doing: impl Future<Output = T>) -> (T, Vec<String>) {
    let doing = async {
        let outcome = doing.await;
        (outcome, UNREADABLE.with(|keys| keys.borrow_mut().split_off(0)))
    };
    UNREADABLE.scope(RefCell::default(), doing).await
}

/// A page of a listing, as XML, without the keys that cannot be asked for; those of the present task are noted.
pub(crate) fn sort_out(page: &str) -> Option<String> {
    let mut kept = String::with_capacity(page.len());
    let mut rest = page;
    let mut changed = false;
    while let Some(begin) = rest.find("<Contents>") {
        let Some(length) = rest[begin..].find("</Contents>") else { break };
        let end = begin + length + "</Contents>".len();
        let key = element(&rest[begin..end], "Key").map(|key| unescaped(&key)).unwrap_or_default();
        if Path::parse(&key).is_ok_and(|parsed| parsed.as_ref() == key) {
            kept.push_str(&rest[..end]);
        } else {
            kept.push_str(&rest[..begin]);
            changed = true;
            // A key that ends in a slash and has no other fault only marks a folder.
            let marker = key
                .strip_suffix('/')
                .is_some_and(|folder| Path::parse(folder).is_ok_and(|parsed| parsed.as_ref() == folder));
            if !marker {
                let _ = UNREADABLE.try_with(|keys| keys.borrow_mut().push(key));
            }
        }
        rest = &rest[end..];
    }
    kept.push_str(rest);
    changed.then_some(kept)
}

/// The text of the first element of a name, as it stands there.
pub(crate) fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
}

/// Text of XML as it was meant.
pub(crate) fn unescaped(text: &str) -> String {
    let mut pieces = text.split('&');
    let mut plain = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(';').unwrap_or((piece, ""));
        let meant = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => numbered(name),
        };
        match meant {
            Some(character) => plain.push(character),
            None => plain.extend(["&", name, ";"]),
        }
        plain.push_str(rest);
    }
    plain
}

fn numbered(name: &str) -> Option<char> {
    let digits = name.strip_prefix('#')?;
    let number = match digits.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    char::from_u32(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str]) -> String {
        let contents: Vec<String> =
            keys.iter().map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>")).collect();
        format!(
            "<ListBucketResult><Name>b</Name>{}<KeyCount>2</KeyCount></ListBucketResult>",
            contents.join("")
        )
    }

    #[test]
    fn keys_that_cannot_be_asked_for_are_taken_out_of_a_page_and_others_left_alone() {
        assert_eq!(sort_out(&page(&["a/b", "a/c &amp; d"])), None);
        assert_eq!(sort_out("no page"), None);
        let mixed = page(&["a/b", "a//c", "/d", "e/", "f/../g", "h"]);
        assert_eq!(sort_out(&mixed), Some(page(&["a/b", "h"])));
    }

    #[test]
    fn markers_of_folders_are_not_named() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let listed = runtime.block_on(with_unreadable(async { sort_out(&page(&["a/", "b//c", "d//"])) }));
        assert_eq!(listed.1, ["b//c", "d//"]);
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescaped("a&amp;b&#38;c&#x26;d&nope;e"), "a&b&c&d&nope;e");
    }
}
