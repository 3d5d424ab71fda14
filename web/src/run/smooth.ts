// Smoothing as it is drawn: an exponential mean whose first values are not drawn towards zero. Gaps stay gaps.

type Values = readonly (number | null)[];

/** `weight` is how much of the mean so far stays, from 0 (nothing is smoothed) to below 1. */
export function smoothed(values: Values, weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  let mean = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

/** The weight that a word of the URL says; 0 for anything else. */
export function weightOf(text: string | undefined): number {
  const weight = text !== undefined && /^0?\.\d{1,3}$/.test(text) ? Number(text) : 0;
  return weight < 1 ? weight : 0;
}
