"""Every error of Penstock: one tree, fields for programs, a hint for people.

    PenstockError
    ├── UsageError               the command line or an argument makes no sense
    ├── NameUnwritable           a name that the encoding of file names cannot write
    ├── EventError               recordings of events
    │   ├── EventFileUnusable    cannot be created, opened or read
    │   ├── EventFormatUnknown   written by a newer Penstock
    │   └── NotAnEventFile       something else, or a damaged header
    ├── ObserveError             what is counted or measured
    │   ├── BatchUnreadable      rows or boundaries that cannot be read without waiting for a device
    │   ├── ExportTargetTaken    a place that holds something else than earlier exports of the same run
    │   ├── ExportUnwritable     the target of an export cannot be written
    │   ├── ModelUntraceable     a model whose operators cannot be seen on fake tensors
    │   └── ReceiverFailed       a receiver of metrics did not take them
    ├── StoreError               where bytes live
    │   ├── CacheUnusable        a directory cannot be the cache of this host
    │   ├── ObjectMissing        nothing has that name
    │   └── StoreRefusal         the store did not do it; with object, bytes, tries and time
    │       ├── BucketMissing        there is no such bucket or container
    │       ├── StoreDenied          it does not let us
    │       ├── StoreThrottled       it asked us to slow down, until the budget of retries was spent
    │       ├── StoreTimedOut        no answer, or no progress, within the deadline
    │       ├── ObjectChanged        it holds another object than when it was opened
    │       └── StoreFailed          anything else it said, after retries
    ├── RegistryError            names, versions and tags
    │   ├── AddressInvalid       not of the form name, name@3, name@tag or name@b3:…
    │   ├── AddressUnknown       no dataset, version or tag of that name
    │   ├── PlaceUnknown         a version was never at the place that is said to have moved
    │   ├── ManifestDamaged      what the registry holds is not what its digest says
    │   ├── ManifestNewer        written by a newer Penstock
    │   ├── NumbersContended     too many writers at once
    │   └── RegistryReadOnly     a registry that is only read was to be changed
    ├── DataError                raw files and their rows
    │   ├── BadRow               a row that breaks its format's contract, with file, line and offset
    │   ├── TooManyBadRows       more rows were skipped than the limit allows
    │   ├── FileUnusable         a file that cannot be registered at all: empty, truncated, of no known format
    │   │   ├── ExportRefused    a row holds something that the form of an export cannot, with row and field
    │   │   └── FileEmpty        one that is as it should be, without a row
    │   ├── FileChanging         a file that changed while it was registered
    │   ├── FilesLeftOut         something would be left out, and that was not allowed
    │   ├── FormatsMixed         files of several formats in one folder or pattern
    │   ├── ConfigsMixed         a dataset of the Hub with configurations, and it was not said which to take
    │   ├── SplitsMixed          a folder with splits, and it was not said which to take
    │   ├── NothingToRegister    no file matches
    │   ├── SchemaMixed          files of one version disagree about a field
    │   ├── TablesMixed          files of one version have no field in common
    │   ├── CorruptShard         bytes are not what was registered, with file and offset
    │   ├── IndexDamaged         an index is not what its digest says, or cannot be read
    │   ├── RowOutOfRange        there is no such row
    │   ├── TokenOutOfRange      there is no such token in a row of a batch
    │   ├── MaskLengthWrong      a mask of rows that has not one boolean for every row
    │   ├── DiskFull             no room for derived data, with place, needed and free bytes
    │   ├── DerivedTooLarge      a derived copy would pass the limit or the free space
    │   ├── ScanCancelled        scanning was stopped
    │   ├── RecipeInvalid        a recipe, lane or stage that makes no sense, with the field
    │   │   ├── FieldUnknown     a filter names a field that no row has, with the nearest name
    │   │   └── ColumnAmbiguous  a filter names a measured column of which there are several
    │   ├── SourceEmpty          nothing of a source is left after its filters
    │   ├── SampleUndecodable    a sample that a stage cannot make anything of, with version, row and shard
    │   ├── TooManyUndecodable   more such samples were masked than the recipe allows
    │   ├── CursorForeign        a cursor made by another recipe, or tampered with
    │   ├── BatchDamaged         bytes that should be a batch are none
    │   └── FeedClosed           a feed used after close, or in the child of a fork
    ├── ServiceError             servers that make batches for others, and their clients
    │   ├── ServiceUnavailable   no server answered within the limit; with what each said last
    │   ├── ServiceDenied        a server wants a token, and this is not the one
    │   ├── ServiceMismatch      a server serves another plan
    │   ├── ServiceIncompatible  client and server are of versions that do not fit
    │   ├── ServiceBusy          a server has too much to do; clients ask again
    │   ├── ServiceRequestInvalid a request that makes no sense
    │   └── ServiceUnusable      a server or client cannot be set up with what was given
    ├── ProcessError             jobs and their processes
    │   ├── AgentMissing         the executable that supervises is not there
    │   ├── JobUnknown           no job has that name
    │   ├── JobAmbiguous         several jobs have names that begin as asked for
    │   ├── JobInvalid           a job that makes no sense, with the role and the field
    │   ├── JobFileInvalid       a job file that makes no sense, with the place in it
    │   ├── RankUnknown          a job has no such rank, or it does not run
    │   ├── HomeUnwritable       the directory of a job cannot be made
    │   ├── IncidentUnknown      a job has no such incident
    │   ├── StateUnreadable      a job's state was written by another Penstock, or is damaged
    │   ├── JobSilent            the job's agent does not answer
    │   │   └── JobElsewhere         a job of other hosts, with a command that reaches one
    │   ├── SaveUnheard          ranks were to save, and not all have heard it
    │   ├── SlotsImpossible      a job wants more than this machine has
    │   ├── SlotsUnreadable      what is held on this machine cannot be read
    │   ├── SpyMissing           the executable that reads stacks is not there
    │   ├── StacksForbidden      the kernel does not let us look into processes
    │   ├── HostsInvalid         a list of hosts that makes no sense
    │   ├── JoinInvalid          hosts that are to be one job, with too little to say about it
    │   ├── KeyMissing           hosts are to join, and this one has no key
    │   ├── KeyUnsafe            a key that others may know
    │   ├── KeyDamaged           a key file that holds no key
    │   ├── HostUnreachable      a host without an address, or that no interface leads to
    │   ├── InterfaceUnknown     a network interface that this host does not have
    │   ├── HostTaken            this host runs that job already
    │   ├── DirectoryUnshippable the directory of --ship cannot be sent to the hosts of a job
    │   ├── StateUnusable        the directory of --state cannot be used on this host
    │   ├── HostsMissing         hosts that could not be started, each with its own words
    │   ├── AgentUnusable        a copy of the agent that does not run on its host
    │   ├── EngineError          engines that hosts are rented from
    │   │   ├── EngineMissing        the engine is not here, or too old
    │   │   ├── EngineRefused        the engine said no, in its own words
    │   │   ├── EngineSilent         the engine does not answer
    │   │   └── AllocationLost       hosts were taken back before the job said how it ended
    │   ├── HealthError          hosts that are not fit to train, and what is remembered of them
    │   │   ├── CheckFailed          the hosts could not be checked
    │   │   ├── HistoryUnusable      what is remembered cannot be read or written
    │   │   ├── HostExcluded         a host that failed too often takes no part
    │   │   ├── HostsExcluded        a job would lose more than a tenth of its hosts that way
    │   │   └── HostUnfit            a host failed the look before a job uses it
    │   ├── BundleInvalid        what a launcher sent to a host is not a job
    │   ├── ProfileInvalid       a profile of faults that makes no sense, with the cause and the field
    │   └── SimulationInvalid    an imagined job that makes no sense, with the field
    ├── RunError                 training runs
    │   ├── RunUnknown           no run is in that directory
    │   ├── RunDamaged           a journal or records that cannot be read
    │   ├── RunOnlyObserved      steps of a loop of one's own, without a recipe
    │   ├── TimelineInvalid      a timeline of a run that breaks the form, with the field
    │   ├── AlertsInvalid        a file of alerts that breaks the form, with the key
    │   ├── RunUnwritable        a journal or records that cannot be written, such as on a full disk
    │   ├── RunStopped           a policy decided to stop
    │   ├── SilentCorruption     a step that was executed again gave other bits
    │   ├── RollbackImpossible   no checkpoint is left from before the steps to leave out
    │   ├── RunUnpinned          something that decides bits was left open
    │   ├── WorldSizeUnfit       the job may go on with a number of ranks that cannot share the batches
    │   ├── RepetitionImpossible steps cannot be executed again, for want of something
    │   ├── RepetitionFailed     steps were to be executed again, and the program failed
    │   └── NotEqual             two executions of the same steps have other bits
    └── StateError               checkpoints
        ├── TreeInvalid              something in a tree that cannot be saved or loaded
        ├── TreeMismatch             a tree and a checkpoint that do not fit, with what is missing and unexpected
        ├── TreeSpoiled              a tree that a failed load has filled in part
        ├── SelectionEmpty           a selector or a rename that finds nothing, with the nearest names
        ├── CheckpointDamaged        bytes are not what was saved, with file, place and tensor
        │   └── RecordUnknown            a whole record of the log that only a newer release knows
        ├── CheckpointUnknown        there is no checkpoint of that step
        │   └── NothingSaved             there is none at all
        ├── CheckpointRetired        a checkpoint was retired while it was read
        ├── NothingLoads             checkpoints exist and none of them can be loaded
        ├── PlaceInUse               a repair was asked for beside an incarnation that is at work
        ├── ForeignUnusable          a file of another system that is no state, or one that cannot be imported
        ├── LayoutChanged            what ranks kept to themselves, in another layout
        ├── SaveFailed               a save that could not be made durable, with what was tried
        │   └── RanksDiffer          ranks hold different things under one name, where only one can be saved
        ├── Fenced                   a newer incarnation of the run has taken over
        ├── IncarnationTaken         other processes began the incarnation that this one was told to join
        ├── CommitsUnseen            others committed since this state was loaded
        ├── ResumeFailed             a rank had trouble that is no damage, so no rank resumes
        ├── PlaceNotShared           a place that not all hosts of a job see, with the host
        └── RanksMissing             ranks that did not report before the deadline

An error says what happened with the values that matter, and, where one is known, a ``hint`` says what to do. Errors
are made from keyword arguments, which stay readable as attributes; those that begin in Rust are made by
``crates/penstock-python/src/error.rs`` from the same arguments, so a message is written once.
"""

from penstock.errors.data import (
    BadRow,
    BatchDamaged,
    ColumnAmbiguous,
    ConfigsMixed,
    CorruptShard,
    CursorForeign,
    DataError,
    DerivedTooLarge,
    DiskFull,
    ExportRefused,
    FeedClosed,
    FieldUnknown,
    FileChanging,
    FileEmpty,
    FilesLeftOut,
    FileUnusable,
    FormatsMixed,
    IndexDamaged,
    MaskLengthWrong,
    NothingToRegister,
    RecipeInvalid,
    RowOutOfRange,
    SampleUndecodable,
    ScanCancelled,
    SchemaMixed,
    SourceEmpty,
    SplitsMixed,
    TablesMixed,
    TokenOutOfRange,
    TooManyBadRows,
    TooManyUndecodable,
)
from penstock.errors.engines import (
    AllocationLost,
    EngineError,
    EngineMissing,
    EngineRefused,
    EngineSilent,
)
from penstock.errors.events import (
    EventError,
    EventFileUnusable,
    EventFormatUnknown,
    NotAnEventFile,
)
from penstock.errors.health import (
    CheckFailed,
    HealthError,
    HistoryUnusable,
    HostExcluded,
    HostsExcluded,
    HostUnfit,
)
from penstock.errors.observe import (
    BatchUnreadable,
    ExportTargetTaken,
    ExportUnwritable,
    ModelUntraceable,
    ObserveError,
    ReceiverFailed,
)
from penstock.errors.process import (
    AgentMissing,
    AgentUnusable,
    BundleInvalid,
    DirectoryUnshippable,
    HomeUnwritable,
    HostsInvalid,
    HostsMissing,
    HostTaken,
    HostUnreachable,
    IncidentUnknown,
    InterfaceUnknown,
    JobAmbiguous,
    JobElsewhere,
    JobFileInvalid,
    JobInvalid,
    JobSilent,
    JobUnknown,
    JoinInvalid,
    KeyDamaged,
    KeyMissing,
    KeyUnsafe,
    ProcessError,
    ProfileInvalid,
    RankUnknown,
    SaveUnheard,
    SimulationInvalid,
    SlotsImpossible,
    SlotsUnreadable,
    SpyMissing,
    StacksForbidden,
    StateUnreadable,
    StateUnusable,
)
from penstock.errors.registry import (
    AddressInvalid,
    AddressUnknown,
    ManifestDamaged,
    ManifestNewer,
    NumbersContended,
    PlaceUnknown,
    RegistryError,
    RegistryReadOnly,
)
from penstock.errors.root import (
    NameUnwritable,
    PenstockError,
    UsageError,
)
from penstock.errors.run import (
    AlertsInvalid,
    NotEqual,
    RepetitionFailed,
    RepetitionImpossible,
    RollbackImpossible,
    RunDamaged,
    RunError,
    RunOnlyObserved,
    RunStopped,
    RunUnknown,
    RunUnpinned,
    RunUnwritable,
    SilentCorruption,
    TimelineInvalid,
    WorldSizeUnfit,
)
from penstock.errors.service import (
    ServiceBusy,
    ServiceDenied,
    ServiceError,
    ServiceIncompatible,
    ServiceMismatch,
    ServiceRequestInvalid,
    ServiceUnavailable,
    ServiceUnusable,
)
from penstock.errors.state import (
    CheckpointDamaged,
    CheckpointRetired,
    CheckpointUnknown,
    CommitsUnseen,
    Fenced,
    ForeignUnusable,
    IncarnationTaken,
    LayoutChanged,
    NothingLoads,
    NothingSaved,
    PlaceInUse,
    PlaceNotShared,
    RanksDiffer,
    RanksMissing,
    RecordUnknown,
    ResumeFailed,
    SaveFailed,
    SelectionEmpty,
    StateError,
    TreeInvalid,
    TreeMismatch,
    TreeSpoiled,
)
from penstock.errors.store import (
    BucketMissing,
    CacheUnusable,
    ObjectChanged,
    ObjectMissing,
    StoreDenied,
    StoreError,
    StoreFailed,
    StoreRefusal,
    StoreThrottled,
    StoreTimedOut,
)

__all__ = [
    "AddressInvalid",
    "AddressUnknown",
    "AgentMissing",
    "AgentUnusable",
    "AlertsInvalid",
    "AllocationLost",
    "BadRow",
    "BatchDamaged",
    "BatchUnreadable",
    "BucketMissing",
    "BundleInvalid",
    "CacheUnusable",
    "CheckFailed",
    "CheckpointDamaged",
    "CheckpointRetired",
    "CheckpointUnknown",
    "ColumnAmbiguous",
    "CommitsUnseen",
    "ConfigsMixed",
    "CorruptShard",
    "CursorForeign",
    "DataError",
    "DerivedTooLarge",
    "DirectoryUnshippable",
    "DiskFull",
    "EngineError",
    "EngineMissing",
    "EngineRefused",
    "EngineSilent",
    "EventError",
    "EventFileUnusable",
    "EventFormatUnknown",
    "ExportRefused",
    "ExportTargetTaken",
    "ExportUnwritable",
    "FeedClosed",
    "Fenced",
    "FieldUnknown",
    "FileChanging",
    "FileEmpty",
    "FileUnusable",
    "FilesLeftOut",
    "ForeignUnusable",
    "FormatsMixed",
    "HealthError",
    "HistoryUnusable",
    "HomeUnwritable",
    "HostExcluded",
    "HostTaken",
    "HostUnfit",
    "HostUnreachable",
    "HostsExcluded",
    "HostsInvalid",
    "HostsMissing",
    "IncarnationTaken",
    "IncidentUnknown",
    "IndexDamaged",
    "InterfaceUnknown",
    "JobAmbiguous",
    "JobElsewhere",
    "JobFileInvalid",
    "JobInvalid",
    "JobSilent",
    "JobUnknown",
    "JoinInvalid",
    "KeyDamaged",
    "KeyMissing",
    "KeyUnsafe",
    "LayoutChanged",
    "ManifestDamaged",
    "ManifestNewer",
    "MaskLengthWrong",
    "ModelUntraceable",
    "NameUnwritable",
    "NotAnEventFile",
    "NotEqual",
    "NothingLoads",
    "NothingSaved",
    "NothingToRegister",
    "NumbersContended",
    "ObjectChanged",
    "ObjectMissing",
    "ObserveError",
    "PenstockError",
    "PlaceInUse",
    "PlaceNotShared",
    "PlaceUnknown",
    "ProcessError",
    "ProfileInvalid",
    "RankUnknown",
    "RanksDiffer",
    "RanksMissing",
    "ReceiverFailed",
    "RecipeInvalid",
    "RecordUnknown",
    "RegistryError",
    "RegistryReadOnly",
    "RepetitionFailed",
    "RepetitionImpossible",
    "ResumeFailed",
    "RollbackImpossible",
    "RowOutOfRange",
    "RunDamaged",
    "RunError",
    "RunOnlyObserved",
    "RunStopped",
    "RunUnknown",
    "RunUnpinned",
    "RunUnwritable",
    "SampleUndecodable",
    "SaveFailed",
    "SaveUnheard",
    "ScanCancelled",
    "SchemaMixed",
    "SelectionEmpty",
    "ServiceBusy",
    "ServiceDenied",
    "ServiceError",
    "ServiceIncompatible",
    "ServiceMismatch",
    "ServiceRequestInvalid",
    "ServiceUnavailable",
    "ServiceUnusable",
    "SilentCorruption",
    "SimulationInvalid",
    "SlotsImpossible",
    "SlotsUnreadable",
    "SourceEmpty",
    "SplitsMixed",
    "SpyMissing",
    "StacksForbidden",
    "StateError",
    "StateUnreadable",
    "StateUnusable",
    "StoreDenied",
    "StoreError",
    "StoreFailed",
    "StoreRefusal",
    "StoreThrottled",
    "StoreTimedOut",
    "TablesMixed",
    "TimelineInvalid",
    "TokenOutOfRange",
    "TooManyBadRows",
    "TooManyUndecodable",
    "TreeInvalid",
    "TreeMismatch",
    "TreeSpoiled",
    "UsageError",
    "WorldSizeUnfit",
]
