//! Ramps: weights that move from one set to another over a stretch of positions, reached anywhere at once.
//!
//! A ramp does not compute weights place by place. It says how many of its first `n` places are dealt by the weights *after* it;
//! all others are dealt by the weights *before* it. At half of a linear ramp every second place is dealt by the new weights,
//! which gives every source the mean of its two shares. So the counts of a ramp are two counts of fixed [weights](super::Shares),
//! exact at any place, and a ramp of a million steps costs what a single change does.
//!
//! | curve    | share of the places around `x = n / length` that are dealt by the weights after                       |
//! |----------|-------------------------------------------------------------------------------------------------------|
//! | `Linear` | `x`                                                                                                   |
//! | `Cosine` | `(1 - cos(pi x)) / 2`, by straight lines between 257 points: within 0.00001 of it                     |
//! | `Stairs` | `x` as it was at the last multiple of `every` places                                                  |
//!
//! Everything is whole numbers, so it is the same on every machine; the integral of a share between 0 and 1, rounded, never
//! falls and never rises by more than one a place, so no source ever loses a place that it had.

use std::sync::OnceLock;

use super::error::PlanError;

/// Most positions of a ramp: products of three such numbers and a share stay below 2^128.
pub const RAMP_MAX: u64 = 1 << 40;

/// Straight lines that make up a cosine.
const LINES: u64 = 256;
/// Shares of a cosine are multiples of one part in so many.
const UNIT: u64 = 1 << 30;
/// `cos(pi / 256)`.
const COSINE_OF_A_LINE: f64 = 0.999_924_701_839_144_5;

/// How weights move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Curve {
    /// By the same amount at every place.
    Linear,
    /// Slowly at first and at the end.
    Cosine,
    /// As `Linear` does, but only every so many places.
    Stairs {
        /// Places under the same weights.
        every: u64,
    },
}

/// A movement over a number of places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ramp {
    curve: Curve,
    length: u64,
}

impl Ramp {
    /// A movement over `length` places.
    pub fn new(curve: Curve, length: u64) -> Result<Self, PlanError> {
        if length > RAMP_MAX {
            return Err(PlanError::TooFar { what: "a ramp", most: RAMP_MAX });
        }
        let curve = match curve {
            // A stair that is longer than the ramp is as long as it.
            Curve::Stairs { every } => Curve::Stairs { every: every.clamp(1, length.max(1)) },
            other => other,
        };
        Ok(Self { curve, length: length.max(1) })
    }

    /// How many of the first `places` places are dealt by the weights after; all are that come after the ramp.
    pub fn moved(&self, places: u64) -> u64 {
        let within = places.min(self.length);
        let (n, length) = (u128::from(within), u128::from(self.length));
        // The integral as a fraction, rounded: `(2 * above + below) / (2 * below)`.
        let (above, below) = match self.curve {
            Curve::Linear => (n * n, 2 * length),
            Curve::Stairs { every } => {
                let every = u128::from(every);
                let (stairs, rest) = (n / every, n % every);
                // Stair j has `every` places at the share `j * every / length`.
                let before = every * (stairs * stairs.saturating_sub(1) / 2);
                ((before + rest * stairs) * every, length)
            }
            Curve::Cosine => (cosine_area(n, length), u128::from(2 * LINES * UNIT) * length),
        };
        ((2 * above + below) / (2 * below)) as u64 + (places - within)
    }

    /// The share of the weights after at a place of the ramp: 0 where it begins, 1 where it ends.
    pub fn part(&self, place: u64) -> f64 {
        let place = place.min(self.length);
        let share = |place: u64| place as f64 / self.length as f64;
        match self.curve {
            Curve::Linear => share(place),
            Curve::Stairs { .. } if place == self.length => 1.0,
            Curve::Stairs { every } => share(place / every * every),
            Curve::Cosine => {
                let scaled = u128::from(place) * u128::from(LINES);
                let line = (scaled / u128::from(self.length)) as usize;
                let within = (scaled % u128::from(self.length)) as f64 / self.length as f64;
                let points = &cosine().points;
                let next = points[(line + 1).min(points.len() - 1)];
                (points[line] as f64 + (next - points[line]) as f64 * within) / UNIT as f64
            }
        }
    }
}

/// The area under a cosine up to `n` of `length` places, times `2 * LINES * UNIT * length`.
fn cosine_area(n: u128, length: u128) -> u128 {
    let Cosine { points, areas } = cosine();
    let line = ((n * u128::from(LINES)) / length) as usize;
    let within = (n * u128::from(LINES)) % length;
    let Some(next) = points.get(line + 1) else { return u128::from(areas[line]) * length * length };
    let (begin, rise) = (u128::from(points[line]), u128::from(next - points[line]));
    u128::from(areas[line]) * length * length + 2 * within * length * begin + within * within * rise
}

struct Cosine {
    /// The share where each line begins, and where the last one ends.
    points: Vec<u64>,
    /// The sum of both ends of all lines before each.
    areas: Vec<u64>,
}

fn cosine() -> &'static Cosine {
    static TABLE: OnceLock<Cosine> = OnceLock::new();
    TABLE.get_or_init(|| {
        // cos((k + 1) a) = 2 cos(a) cos(k a) - cos((k - 1) a): products and differences give the same bits on every machine.
        let (mut before, mut now) = (COSINE_OF_A_LINE, 1.0);
        let mut points: Vec<u64> = vec![];
        for _ in 0..=LINES / 2 {
            points.push(((1.0 - now) / 2.0 * UNIT as f64).round() as u64);
            (before, now) = (now, 2.0 * COSINE_OF_A_LINE * now - before);
        }
        // The second half is the first one turned round, so that the ends are exact.
        let turned: Vec<u64> = points.iter().rev().skip(1).map(|point| UNIT - point).collect();
        points.extend(turned);
        let mut areas = vec![0];
        for pair in points.windows(2) {
            areas.push(areas[areas.len() - 1] + pair[0] + pair[1]);
        }
        Cosine { points, areas }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_curve() -> impl Strategy<Value = Curve> {
        prop_oneof![
            Just(Curve::Linear),
            Just(Curve::Cosine),
            (1..5_000_u64).prop_map(|every| Curve::Stairs { every })
        ]
    }

    proptest! {
        /// Goal: a place is moved or not, and stays what it is. Method: count place by place anywhere in any ramp.
        #[test]
        fn places_move_one_by_one(curve in any_curve(), length in 1..1_u64 << 40, from in 0.0..1.1_f64) {
            let ramp = Ramp::new(curve, length).unwrap();
            let from = (length as f64 * from) as u64;
            let mut before = ramp.moved(from);
            for place in from + 1..from + 300 {
                let after = ramp.moved(place);
                prop_assert!(after == before || after == before + 1, "{} {} {}", place, before, after);
                before = after;
            }
        }

        /// Goal: a ramp is its curve. Method: the integral by many small steps.
        #[test]
        fn what_has_moved_is_the_area_under_the_curve(curve in any_curve(), length in 1..20_000_u64) {
            let ramp = Ramp::new(curve, length).unwrap();
            let mut area = 0.0;
            for place in 0..=length {
                prop_assert!((ramp.moved(place) as f64 - area).abs() < 1.6, "{} {}", place, area);
                area += match curve {
                    Curve::Stairs { .. } => ramp.part(place),
                    _ => (ramp.part(place) + ramp.part(place + 1)) / 2.0,
                };
            }
        }
    }

    #[test]
    fn a_cosine_is_a_cosine() {
        let ramp = Ramp::new(Curve::Cosine, 1_000_003).unwrap();
        for place in (0..=1_000_003).step_by(997) {
            let exact = (1.0 - (std::f64::consts::PI * place as f64 / 1_000_003.0).cos()) / 2.0;
            assert!((ramp.part(place) - exact).abs() < 1e-5, "{place}");
        }
        assert_eq!((ramp.part(0), ramp.part(1_000_003), ramp.part(u64::MAX)), (0.0, 1.0, 1.0));
    }

    #[test]
    fn half_of_a_ramp_has_moved_when_it_ends() {
        for length in [1, 2, 1_000, 1 << 40] {
            for curve in [Curve::Linear, Curve::Cosine] {
                let ramp = Ramp::new(curve, length).unwrap();
                assert_eq!(ramp.moved(length), length.div_ceil(2), "{curve:?} {length}");
                assert_eq!(ramp.moved(length + 5), length.div_ceil(2) + 5);
            }
        }
        let stairs = Ramp::new(Curve::Stairs { every: 10 }, 100).unwrap();
        // 0.0, 0.1 … 0.9 of ten places each.
        assert_eq!((stairs.moved(10), stairs.moved(20), stairs.moved(100)), (0, 1, 45));
        assert_eq!((stairs.part(9), stairs.part(10), stairs.part(100)), (0.0, 0.1, 1.0));
        assert!(Ramp::new(Curve::Linear, RAMP_MAX + 1).is_err());
    }

    #[test]
    fn golden_ramps() {
        let moved =
            |curve| [1, 77_777, 500_000, 999_999].map(|n| Ramp::new(curve, 1_000_000).unwrap().moved(n));
        assert_eq!(moved(Curve::Linear), [0, 3_025, 125_000, 499_999]);
        assert_eq!(moved(Curve::Stairs { every: 1_000 }), [0, 2_986, 124_750, 499_499]);
        assert_eq!(moved(Curve::Cosine), [0, 386, 90_847, 499_999]);
    }
}
