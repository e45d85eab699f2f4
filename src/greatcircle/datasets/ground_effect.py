"""Generate a quadrotor flight near the ground from first principles.

The learning problem is that of Neural-Lander [1]_: predict the force on a quadrotor besides gravity
and the nominal thrust of its motors. Here this force is known, because the flight is computed from
it. Every row satisfies Newton's law exactly,

    m a = m g + T b₃ + F(z, v, q, u),          T = c_T Σ uᵢ²,

and the targets are F plus Gaussian noise.

===========  ==================================================================================
symbol       meaning (world frame: x, y horizontal, z up; body frame: x forward, y left, z up)
===========  ==================================================================================
m, g         mass; gravity (0, 0, −9.81) m/s²
z, v, a      height of the vehicle's centre above the ground; velocity; acceleration
q, b₃        attitude as a unit quaternion (x, y, z, w), body to world; thrust axis, the body's z
uᵢ           motor speed / 8000 rpm
c_T, ε       nominal thrust of one rotor at u = 1; relative error of that number
G(z)         thrust in ground effect over thrust far from the ground, at the same motor speed
d, d_z, k    rotor drag across and along the thrust axis; fuselage drag
F            residual force, the quantity to learn
===========  ==================================================================================

**Residual force.** F = T ((1 + ε) G(z) − 1) b₃ − d v⊥ − d_z v∥ − k ‖v‖ v, the sum of

* *ground effect*: the ground turns the wake aside, lowers the induced velocity and so raises the
  thrust. For one rotor of radius R, a source and its mirror image below the ground give
  G = 1 / (1 − (R / 4h)²) with h the height of the rotor plane [2]_. A quadrotor gains more than
  a single rotor, since the wakes meet under the body: (R / 4h)² is multiplied by a coefficient ρ
  of the vehicle [3]_, [4]_. Here ρ = 4, which is the formula for a
  single rotor with the area of all four. The legs keep the rotors well above the pole
  h = √ρ R / 4: below the height at which the vehicle stands, G is constant.
* *rotor drag*, linear in the velocity in the body frame: v∥ is the part of v along b₃,
  v⊥ the part across it. Blade flapping and induced drag lie in the rotor plane [5]_; along the
  axis a climbing rotor loses some thrust.
* *fuselage drag*, quadratic in the speed.
* *thrust mismatch*: the true thrust coefficient is (1 + ε) c_T, so part of F is
  proportional to Σ uᵢ².

**Flight.** Position and yaw are sums of sinusoids of random frequency and phase: smooth, bounded,
known with all derivatives, and independent of the number of rows. The slowest sinusoid of the
height has most of the amplitude: it takes the vehicle down to the ground and up again.

**Attitude.** Quadrotors with drag are differentially flat in position and yaw [6]_. As d is the
same in all directions across b₃, the thrust axis has a closed form: Newton's law splits into
m (a − g) + d v + k ‖v‖ v, which must be parallel to b₃, and terms along b₃, which only change the
thrust. To first order b₃ points along a − g; drag adds a degree or two. The quaternion is the
shortest rotation that takes the vertical to b₃, after the yaw [7]_; its real part stays positive
here, so its sign is continuous.

**Motors.** The rotors produce the thrust and the moment J ω̇ + ω × J ω of the flown attitude. They
also balance a centre of mass beside the centre of the rotors, a constant yaw trim, and buffeting
by the recirculating air, again sums of sinusoids. Rotors are numbered as PX4 numbers a quadrotor
in X: front right, rear left (both counter-clockwise), front left, rear right (both clockwise).

References
----------
.. [1] G. Shi et al., "Neural Lander: stable drone landing control using learned dynamics",
   ICRA 2019.
.. [2] I. C. Cheeseman, W. E. Bennett, "The effect of the ground on a helicopter rotor in forward
   flight", ARC R&M 3021, 1955.
.. [3] L. Danjun et al., "Autonomous landing of quadrotor based on ground effect modelling",
   Chinese Control Conference 2015.
.. [4] P. Sanchez-Cuevas, G. Heredia, A. Ollero, "Characterization of the aerodynamic ground effect
   and its influence in multirotor control", Int. J. Aerospace Engineering 2017, 1823056.
.. [5] R. Mahony, V. Kumar, P. Corke, "Multirotor aerial vehicles", IEEE Robotics & Automation
   Magazine 19(3), 2012.
.. [6] M. Faessler, A. Franchi, D. Scaramuzza, "Differential flatness of quadrotor dynamics subject
   to rotor drag for accurate tracking of high-speed trajectories", IEEE RA-L 3(2), 2018.
.. [7] M. Watterson, V. Kumar, "Control of quadrotors using the Hopf fibration on SO(3)",
   ISRR 2017.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from greatcircle.data.table import Table

__all__ = [
    "GRAVITY",
    "INPUTS",
    "RATE",
    "TARGETS",
    "VEHICLE",
    "Quadrotor",
    "generate",
    "ground_gain",
    "nominal_thrust",
    "residual_force",
    "thrust_axis",
]

Array = NDArray[np.float64]

GRAVITY = 9.81  # m/s²
RATE = 100  # rows per second

INPUTS = ("z", "vx", "vy", "vz", "qx", "qy", "qz", "qw", "u1", "u2", "u3", "u4")
TARGETS = ("fx", "fy", "fz")


@dataclass(frozen=True)
class Quadrotor:
    """Constants of a quadrotor of the size of the Intel Aero, the vehicle of Neural-Lander."""

    mass: float = 1.47  # kg
    inertia: tuple[float, float, float] = (0.012, 0.012, 0.020)  # kg m², about body x, y, z
    rotor_radius: float = 0.1195  # m
    rotor_offset: float = 0.127  # m, of each rotor axis from the centre, along body x and y
    rotor_height: float = 0.06  # m, of the rotor plane above the point whose height is z
    standing_height: float = 0.12  # m, z when the legs are on the ground
    thrust_coefficient: float = 5.2  # N, nominal thrust of one rotor at u = 1 (8000 rpm)
    thrust_mismatch: float = 0.04  # 1, true over nominal thrust coefficient, minus one
    torque_per_thrust: float = 0.016  # m, reaction torque of a rotor over its thrust
    ground_coefficient: float = 4.0  # 1, multiplies (R / 4h)²
    rotor_drag: float = 0.38  # N s/m, across the thrust axis
    axial_drag: float = 0.15  # N s/m, along the thrust axis
    fuselage_drag: float = 0.03  # N s²/m², ½ · air density · drag area
    mass_offset: tuple[float, float] = (-0.010, 0.002)  # m, centre of mass in the body, x and y
    yaw_trim: float = 0.010  # N m, constant yaw moment of the rotors


VEHICLE = Quadrotor()

# Signs of each rotor's position (x, y) and of its reaction torque about z, PX4's numbering.
_ROTOR_X = (1, -1, 1, -1)
_ROTOR_Y = (-1, 1, 1, -1)
_ROTOR_SPIN = (-1, -1, 1, 1)


def generate(rows: int = 28_001, *, seed: int = 0, noise_variance: float = 0.2176) -> Table:
    """Generate a flight near the ground of `rows` samples at 100 Hz, with the residual force.

    Parameters
    ----------
    rows : int
        Number of rows. With the same seed, a shorter table is the beginning of a longer one.
    seed : int
        Seed of trajectory, buffeting and noise.
    noise_variance : float
        Variance in N² of the Gaussian noise on each axis of the force. The default is the residual
        that Neural-Lander's network left on the real flight; no model can have an RMS below
        √(3 · 0.2176) = 0.808 N then.

    Returns
    -------
    Table
        Columns t [s], z [m], vx vy vz [m/s], qx qy qz qw, u1..u4 [8000 rpm], fx fy fz [N]. All but
        t and the forces are inputs, the forces are targets.
    """
    if rows < 1:
        raise ValueError(
            f"ground_effect.generate was given rows={rows}; expected at least 1: "
            "ask for one or more rows (100 are one second of flight)"
        )
    if not (np.isfinite(noise_variance) and noise_variance >= 0):
        raise ValueError(
            f"ground_effect.generate was given noise_variance={noise_variance}; expected a finite "
            "non-negative variance in N²: use 0 for forces without noise"
        )
    rng = np.random.default_rng(seed)
    # The plan uses a fixed number of random draws, the flight has a closed form, and the noise is
    # drawn last, row by row. So a shorter table is the beginning of a longer one.
    plan = _draw_plan(rng)
    # One sample before and one after, for central differences of the attitude.
    time = np.arange(-1, rows + 1) / RATE
    z, velocity, quaternion, u = _fly(plan, time, VEHICLE)
    force = residual_force(z, velocity, quaternion, u, VEHICLE)
    force += np.sqrt(noise_variance) * rng.standard_normal(force.shape)

    values = (time[1:-1], z, *velocity.T, *quaternion.T, *u.T, *force.T)
    columns: dict[str, Array] = dict(zip(("t", *INPUTS, *TARGETS), values, strict=True))
    return Table(columns, INPUTS, TARGETS)


def residual_force(
    z: ArrayLike,
    velocity: ArrayLike,
    quaternion: ArrayLike,
    u: ArrayLike,
    vehicle: Quadrotor = VEHICLE,
) -> Array:
    """Return the force in N, world frame, besides gravity and nominal thrust, without noise.

    Parameters
    ----------
    z : array_like, (...)
        Height of the vehicle's centre above the ground [m].
    velocity : array_like, (..., 3)
        Velocity in the world frame [m/s].
    quaternion : array_like, (..., 4)
        Attitude, (x, y, z, w), unit norm, body to world.
    u : array_like, (..., 4)
        Motor speeds over 8000 rpm.
    vehicle : Quadrotor
        Constants of the vehicle.

    Returns
    -------
    numpy.ndarray, (..., 3)
        The residual force F of the module's first equation.
    """
    v = np.asarray(velocity, np.float64)
    axis = thrust_axis(quaternion)
    excess = nominal_thrust(u, vehicle) * (_thrust_gain(z, vehicle) - 1)
    climb = _dot(v, axis)
    along_axis = excess + (vehicle.rotor_drag - vehicle.axial_drag) * climb
    return along_axis[..., None] * axis - _isotropic_drag(v, vehicle)[..., None] * v


def ground_gain(z: ArrayLike, vehicle: Quadrotor = VEHICLE) -> Array:
    """Return thrust at height z over thrust far from the ground, at the same motor speed (G)."""
    # On its legs the vehicle cannot go lower; a simulation that overshoots stays finite.
    height = np.maximum(np.asarray(z, np.float64), vehicle.standing_height) + vehicle.rotor_height
    ratio = vehicle.rotor_radius / (4 * height)
    return 1 / (1 - vehicle.ground_coefficient * ratio**2)


def nominal_thrust(u: ArrayLike, vehicle: Quadrotor = VEHICLE) -> Array:
    """Return the nominal thrust in N for the motor speeds, c_T Σ uᵢ²."""
    u = np.asarray(u, np.float64)
    return vehicle.thrust_coefficient * _dot(u, u)


def thrust_axis(quaternion: ArrayLike) -> Array:
    """Return the third column of the rotation matrix of a unit quaternion (x, y, z, w)."""
    x, y, z, w = np.moveaxis(np.asarray(quaternion, np.float64), -1, 0)
    return np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=-1)


def _thrust_gain(z: ArrayLike, vehicle: Quadrotor) -> Array:
    """Return the ratio of true to nominal thrust."""
    return (1 + vehicle.thrust_mismatch) * ground_gain(z, vehicle)


def _isotropic_drag(velocity: Array, vehicle: Quadrotor) -> Array:
    """Return the drag component opposite to the velocity, divided by the speed [N s/m]."""
    return vehicle.rotor_drag + vehicle.fuselage_drag * np.sqrt(_dot(velocity, velocity))


@dataclass(frozen=True, eq=False)
class _Waves:
    """A sum of sinusoids, amplitudes · sin(frequencies t + phases)."""

    amplitudes: Array
    frequencies: Array  # rad/s
    phases: Array

    def at(self, time: Array) -> Array:
        """Return value, first and second derivative, (3, len(time))."""
        value, first, second = np.zeros((3, time.size))
        # A loop rather than a matrix product, whose bits depend on the number of rows.
        for amplitude, frequency, phase in zip(
            self.amplitudes, self.frequencies, self.phases, strict=True
        ):
            angle = frequency * time + phase
            sine = amplitude * np.sin(angle)
            value += sine
            first += frequency * amplitude * np.cos(angle)
            second -= frequency**2 * sine
        return np.stack([value, first, second])


@dataclass(frozen=True, eq=False)
class _Plan:
    """The random quantities of a flight, drawn before it."""

    x: _Waves  # m
    y: _Waves  # m
    z: _Waves  # m
    yaw: _Waves  # rad
    buffeting: tuple[_Waves, _Waves, _Waves]  # N m, body axes


def _draw_plan(rng: np.random.Generator) -> _Plan:
    def waves(hertz: ArrayLike, amplitudes: ArrayLike) -> _Waves:
        # Frequencies change little, so that the flights of all seeds are at the same scale.
        hertz = np.asarray(hertz, np.float64)
        frequencies = 2 * np.pi * hertz * rng.uniform(0.85, 1.15, hertz.size)
        return _Waves(
            np.broadcast_to(np.asarray(amplitudes, np.float64), hertz.shape),
            frequencies,
            rng.uniform(0, 2 * np.pi, hertz.size),
        )

    # Six sinusoids of about equal speed, 0.7 m/s RMS together.
    hertz = np.geomspace(0.1, 0.45, 6)
    lateral = 0.4 / (2 * np.pi * hertz)
    # Buffeting and trim together stay below the smallest thrust of a rotor: none ever stops.
    gusts = np.geomspace(0.3, 3.0, 5)
    return _Plan(
        x=waves(hertz, lateral),
        y=waves(hertz, lateral),
        # The amplitudes add up to 0.70 m, less than the mean height: never below the ground.
        z=waves((0.1, 0.21, 0.5, 0.85), (0.56, 0.08, 0.04, 0.02)),
        yaw=waves((0.03, 0.07, 0.15), 0.08),
        buffeting=(waves(gusts, 0.045), waves(gusts, 0.045), waves(gusts, 0.014)),
    )


_MEAN_CLEARANCE = 0.71  # m, of the legs above the ground; the height oscillates about it


def _fly(plan: _Plan, time: Array, vehicle: Quadrotor) -> tuple[Array, Array, Array, Array]:
    """Return height, velocity, quaternion and motor speeds without the first and last time."""
    position, velocity, acceleration = np.stack(
        [plan.x.at(time), plan.y.at(time), plan.z.at(time)], axis=-1
    )
    z = vehicle.standing_height + _MEAN_CLEARANCE + position[:, 2]

    # Newton's law without the forces along b₃ gives the direction of b₃.
    lift = vehicle.mass * acceleration + _isotropic_drag(velocity, vehicle)[:, None] * velocity
    lift[:, 2] += vehicle.mass * GRAVITY
    magnitude = np.sqrt(_dot(lift, lift))
    axis = lift / magnitude[:, None]
    quaternion = _attitude(axis, plan.yaw.at(time)[0])
    # Along b₃: drag there is axial_drag, not the rotor_drag in `lift`.
    thrust = magnitude + (vehicle.axial_drag - vehicle.rotor_drag) * _dot(velocity, axis)

    inner = slice(1, -1)
    moment = _rotor_moment(plan, time[inner], quaternion, thrust[inner], vehicle)
    thrusts = _mix(thrust[inner], moment, vehicle)
    gain = _thrust_gain(z[inner], vehicle) * vehicle.thrust_coefficient
    u = np.sqrt(thrusts / gain[:, None])
    return z[inner], velocity[inner], quaternion[inner], u


def _attitude(axis: Array, yaw: Array) -> Array:
    """Return the quaternion of a yaw about the vertical, then the shortest rotation to `axis`."""
    bx, by, bz = axis.T
    w = np.sqrt((1 + bz) / 2)
    tilt = np.stack([-by / (2 * w), bx / (2 * w), np.zeros_like(w), w], axis=1)
    zero = np.zeros_like(yaw)
    heading = np.stack([zero, zero, np.sin(yaw / 2), np.cos(yaw / 2)], axis=1)
    return _multiply(tilt, heading)


def _rotor_moment(
    plan: _Plan, time: Array, quaternion: Array, thrust: Array, vehicle: Quadrotor
) -> Array:
    """Return the moment of the rotors about the body axes, (len(time), 3)."""
    before, now, after = quaternion[:-2], quaternion[1:-1], quaternion[2:]
    conjugate = now * np.array([-1, -1, -1, 1])
    # Body rates are the vector part of 2 q* q̇; its derivative is that of 2 q* q̈, because
    # (q̇)* q̇ is a pure scalar.
    rates = 2 * _multiply(conjugate, (after - before) * (RATE / 2))[:, :3]
    angular = 2 * _multiply(conjugate, (after - 2 * now + before) * RATE**2)[:, :3]
    inertia = np.asarray(vehicle.inertia)
    moment = inertia * angular + np.cross(rates, inertia * rates)

    # The thrust does not act at the centre of mass: the rotors cancel −offset × thrust.
    offset_x, offset_y = vehicle.mass_offset
    moment[:, 0] += offset_y * thrust
    moment[:, 1] -= offset_x * thrust
    moment[:, 2] += vehicle.yaw_trim
    return moment - np.stack([gust.at(time)[0] for gust in plan.buffeting], axis=1)


def _mix(thrust: Array, moment: Array, vehicle: Quadrotor) -> Array:
    """Return the thrust of each rotor for a total `thrust` and `moment`, (rows, 4)."""
    arm, torque = vehicle.rotor_offset, vehicle.torque_per_thrust
    roll, pitch, yaw = moment.T
    return np.stack(
        [
            (thrust + y * roll / arm - x * pitch / arm + spin * yaw / torque) / 4
            for x, y, spin in zip(_ROTOR_X, _ROTOR_Y, _ROTOR_SPIN, strict=True)
        ],
        axis=1,
    )


def _multiply(p: Array, q: Array) -> Array:
    """Return the Hamilton product of quaternions (x, y, z, w)."""
    px, py, pz, pw = p.T
    qx, qy, qz, qw = q.T
    return np.stack(
        [
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
            pw * qw - px * qx - py * qy - pz * qz,
        ],
        axis=1,
    )


def _dot(a: Array, b: Array) -> Array:
    return np.sum(a * b, axis=-1)
