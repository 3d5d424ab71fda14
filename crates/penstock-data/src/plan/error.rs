//! Why something cannot be planned. Every variant carries its values as fields; texts say them to people.

/// A plan that cannot be made from what was given.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// A source without a single surviving sample.
    #[error("the source has no samples left after its filter")]
    EmptySource,
    /// All surviving samples of a source are empty.
    #[error("the {samples} samples of the source have no tokens")]
    NoTokens {
        /// How many samples there are.
        samples: u64,
    },
    /// A pack length that cannot be used.
    #[error("a pack of {pack_tokens} tokens was asked for; it must have 1 to {most}")]
    PackTokens {
        /// Tokens per pack, as asked for.
        pack_tokens: u32,
        /// Most tokens per pack under this policy.
        most: u32,
    },
    /// More samples in one block than can be numbered.
    #[error("a block of {samples} samples is too large; at most {most} can be planned at once")]
    TooManySamples {
        /// Samples of the block.
        samples: u64,
        /// Most samples a block may have.
        most: u64,
    },
    /// More packs in one block than can be numbered or held.
    #[error("a block makes {packs} packs, which is more than can be numbered or held in memory")]
    TooManyPacks {
        /// Packs of the block.
        packs: u64,
    },
    /// A sample that is to have a row of its own and does not fit into it.
    #[error("a sample has {tokens} tokens, but a row of its own holds {pack_tokens}")]
    SampleTooLong {
        /// Tokens of the sample.
        tokens: u32,
        /// Tokens of a row.
        pack_tokens: u32,
    },
    /// A table does not belong to this block.
    #[error("{found} lengths were given for a block of {expected} samples")]
    Lengths {
        /// Samples of the block.
        expected: u64,
        /// Lengths given.
        found: u64,
    },
    /// A pack that the block does not have.
    #[error("pack {pack} was asked for, but the block has {packs}")]
    NoSuchPack {
        /// The pack asked for, counted from 0.
        pack: u32,
        /// How many packs there are.
        packs: u32,
    },
    /// A weight that is not a finite number of at least 0.
    #[error(
        "source {source_number} has weight {weight} from position {from} on; weights are finite and not negative"
    )]
    BadWeight {
        /// First position of the weights.
        from: u64,
        /// Which source, counted from 0.
        source_number: usize,
        /// Its weight.
        weight: f64,
    },
    /// Weights that sum to nothing.
    #[error("no source has a positive weight from position {from} on")]
    NoWeight {
        /// First position of the weights.
        from: u64,
    },
    /// Weights and sources differ in number.
    #[error("{found} weights are given from position {from} on, for {expected} sources")]
    WeightCount {
        /// First position of the weights.
        from: u64,
        /// How many sources there are.
        expected: usize,
        /// How many weights there are.
        found: usize,
    },
    /// More sources than a mixture can number.
    #[error("{sources} sources were given; a mixture has at most {most}")]
    TooManySources {
        /// How many sources were given.
        sources: usize,
        /// How many there may be.
        most: usize,
    },
    /// A schedule that does not say how it begins.
    #[error("the {schedule} schedule must begin at 0, and begins {begins}")]
    ScheduleStart {
        /// `weights` or `batch`.
        schedule: &'static str,
        /// `at <number>`, or `nowhere` when the schedule is empty.
        begins: String,
    },
    /// A schedule whose entries are not in order.
    #[error("the {schedule} schedule must rise, but {next} follows {previous}")]
    ScheduleOrder {
        /// `weights` or `batch`.
        schedule: &'static str,
        /// Where an entry begins.
        previous: u64,
        /// Where the next one begins.
        next: u64,
    },
    /// A batch without rows.
    #[error("the batch is empty from step {step} on")]
    EmptyBatch {
        /// First step of the batch size.
        step: u64,
    },
    /// A lane that is not among the lanes.
    #[error("lane {lane} of {lanes} does not exist; lanes count from 0")]
    NoSuchLane {
        /// The lane asked for.
        lane: u64,
        /// How many lanes there are.
        lanes: u64,
    },
    /// Rows that cannot be dealt evenly.
    #[error("{rows} rows of a step cannot be dealt to {lanes} lanes: the number of lanes must divide them")]
    LanesDoNotDivide {
        /// Rows of the step.
        rows: u64,
        /// How many lanes there are.
        lanes: u64,
    },
    /// A number beyond what a stream can count.
    #[error("{what} goes beyond {most}")]
    TooFar {
        /// What was counted.
        what: &'static str,
        /// The largest number there is.
        most: u64,
    },
}
