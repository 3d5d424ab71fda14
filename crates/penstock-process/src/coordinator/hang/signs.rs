//! What is seen of a rank that it does not say itself: what holds it, whether it works, and where it stands.

use serde::{Deserialize, Serialize};

/// Bytes between two looks that are no work: threads that watch (a progress bar's monitor, a heartbeat) write that much while the
/// rank hangs.
pub const IDLE_BYTES_MAX: u64 = 4096;

/// What keeps a rank from going on, and is no fault of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldKind {
    /// Nobody takes its output.
    Output,
    /// A signal stopped it.
    Stopped,
    /// A debugger has it.
    Traced,
    /// Its control group is frozen.
    Frozen,
}

impl HoldKind {
    /// As people say it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Output => "held by output",
            Self::Stopped => "stopped",
            Self::Traced => "traced",
            Self::Frozen => "frozen",
        }
    }
}

/// What holds a rank, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// What it is.
    pub kind: HoldKind,
    /// The look at which it was first seen.
    pub since_ms: u64,
}

/// Where the main thread of a rank stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackPlace {
    /// Equal for equal frames.
    pub digest: u64,
    /// It waits for its peers.
    pub collective: bool,
}

/// What was last seen of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signs {
    /// What holds it.
    pub hold: Option<Hold>,
    /// When it, or somebody below it, was last seen to read or write.
    pub bytes_ms: Option<u64>,
    /// When its main thread was last seen at another place than before.
    pub moved_ms: Option<u64>,
    /// Where it stood at the newest look; nothing if it could not be seen.
    pub place: Option<StackPlace>,
    /// Bytes read and written so far, as far as that was seen.
    #[serde(skip)]
    pub(super) bytes: Option<u64>,
    /// When it was last seen where it stands.
    #[serde(skip)]
    pub(super) placed_ms: Option<u64>,
}

impl Signs {
    /// Of a rank of which nothing is known but what holds it.
    pub fn held(hold: Hold) -> Self {
        Self { hold: Some(hold), ..Self::default() }
    }

    /// When it last showed work.
    pub fn work_ms(&self) -> Option<u64> {
        self.bytes_ms.max(self.moved_ms)
    }

    /// What it and all below it have read and written. A child that ends may take its count along, so only more than ever is work.
    pub fn note_bytes(&mut self, bytes: u64, now_ms: u64) {
        let before = self.bytes.replace(bytes.max(self.bytes.unwrap_or(0)));
        if before.is_some_and(|before| bytes > before.saturating_add(IDLE_BYTES_MAX)) {
            self.bytes_ms = Some(now_ms);
        }
    }

    /// Where it stands now. Where it stood before its last step, at `since_ms`, says nothing about whether it moves.
    pub fn note_place(&mut self, place: Option<StackPlace>, since_ms: u64, now_ms: u64) {
        let before = self.place.filter(|_| self.placed_ms.is_some_and(|placed_ms| placed_ms >= since_ms));
        if before.zip(place).is_some_and(|(before, now)| before.digest != now.digest) {
            self.moved_ms = Some(now_ms);
        }
        self.place = place.or(before);
        self.placed_ms = place.map(|_| now_ms).or(self.placed_ms);
    }

    /// What holds it now, if anything does.
    pub fn note_hold(&mut self, kind: Option<HoldKind>, now_ms: u64) {
        let since_ms = |kind| self.hold.filter(|hold| hold.kind == kind).map_or(now_ms, |hold| hold.since_ms);
        self.hold = kind.map(|kind| Hold { kind, since_ms: since_ms(kind) });
    }
}
