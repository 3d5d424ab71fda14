"""How a simulated job is played: a position that moves with time, faster or slower, and jumps over quiet time. Pure."""

from dataclasses import dataclass, replace

SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
#: The rate at which a lease of 30 s takes three seconds to watch.
USUAL_SPEED = 10.0
#: Quiet time that is longer than this is jumped over, and how much of it is left before something happens; in seconds of whoever looks.
QUIET_S, LEAD_S = 3.0, 1.0


@dataclass(frozen=True, slots=True)
class Playback:
    """Where a job is played, and how."""

    length_s: float
    position_s: float = 0.0
    speed: float = USUAL_SPEED
    is_paused: bool = False

    def after(self, elapsed_s: float, next_s: float | None) -> "Playback":
        """Some time later, when the next thing happens at ``next_s``; at the end it stands still."""
        if self.is_paused:
            return self
        position = self.position_s + elapsed_s * self.speed
        if next_s is None:
            return replace(self, position_s=self.length_s)
        if next_s - position > QUIET_S * self.speed:
            position = next_s - LEAD_S * self.speed
        # Nothing is passed by without being shown.
        return replace(self, position_s=min(position, self.length_s))

    def faster(self, by: int) -> "Playback":
        """So many speeds up or down."""
        place = min(range(len(SPEEDS)), key=lambda place: abs(SPEEDS[place] - self.speed))
        return replace(self, speed=SPEEDS[min(max(place + by, 0), len(SPEEDS) - 1)])

    def at(self, position_s: float) -> "Playback":
        """Somewhere else."""
        return replace(self, position_s=min(max(position_s, 0.0), self.length_s))
