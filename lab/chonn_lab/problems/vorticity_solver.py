"""Two-dimensional incompressible flow in vorticity form on the periodic unit square."""

from collections.abc import Callable

import torch

NU = 1e-3


def angular_wavenumbers(n: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Angular wavenumbers of ``torch.fft.rfft2`` on an (n, n) grid, float64.

    The shapes are (n, 1) along the first axis and (1, n//2 + 1) along the second.
    """
    first = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64, device=device)
    second = torch.fft.rfftfreq(n, 1 / n, dtype=torch.float64, device=device)
    return 2 * torch.pi * first[:, None], 2 * torch.pi * second[None, :]


def solve(
    w0: torch.Tensor,
    forcing: torch.Tensor,
    n_frames: int,
    step: float,
    interval: float = 1.0,
    nu: float = NU,
    on_frame: Callable[[], object] = lambda: None,
) -> torch.Tensor:
    """Evolve ``w_t + u . grad w = nu laplace w + f``: (B, n_frames, n, n), w every `interval`.

    The stream function of ``-laplace psi = w`` gives the velocity ``u = (psi_y, -psi_x)``.
    Transport is computed in physical space from fields cut off at two thirds of the wavenumbers,
    so that products cannot alias onto the kept ones. Viscosity is treated by Crank-Nicolson,
    transport explicitly by the second-order Adams-Bashforth formula (the first step by Heun's).

    `w0` is (B, n, n), n even, and `forcing` (n, n); type and device of w0 are those of the
    computation, and its mean stays. `interval` is divided into equal steps of at most `step`, and
    `on_frame` is called after every frame. A ValueError if the flow is not finite any more: the
    step is too long.
    """
    n = w0.shape[-1]
    k1, k2 = (k.to(w0.dtype) for k in angular_wavenumbers(n, w0.device))
    square = k1**2 + k2**2
    inverse = torch.where(square > 0, 1 / square.clamp(min=1), 0)
    cut = 2 * torch.pi * (n // 3)
    kept = (k1.abs() < cut) & (k2.abs() < cut)
    velocity = 1j * kept * inverse * torch.stack([k2.expand_as(square), -k1.expand_as(square)])
    gradient = 1j * kept * torch.stack([k1.expand_as(square), k2.expand_as(square)])
    # One transform for the four factors of the transport term.
    factors = torch.cat([velocity, gradient])
    f = torch.fft.rfft2(forcing.to(w0.dtype))

    n_steps = max(1, -(-round(interval / step * 1e9) // 10**9))
    dt = interval / n_steps
    implicit, explicit = 1 / (1 + 0.5 * dt * nu * square), 1 - 0.5 * dt * nu * square

    def rate(w: torch.Tensor) -> torch.Tensor:
        u1, u2, w1, w2 = torch.fft.irfft2(factors * w[:, None], s=(n, n)).unbind(1)
        return f - kept * torch.fft.rfft2(u1 * w1 + u2 * w2)

    w = torch.fft.rfft2(w0)
    earlier = None
    frames = []
    for _ in range(n_frames):
        for _ in range(n_steps):
            now = rate(w)
            if earlier is None:
                guess = implicit * (explicit * w + dt * now)
                mean_rate = 0.5 * (now + rate(guess))
            else:
                mean_rate = 1.5 * now - 0.5 * earlier
            w = implicit * (explicit * w + dt * mean_rate)
            earlier = now
        frames.append(torch.fft.irfft2(w, s=(n, n)))
        if not frames[-1].isfinite().all():
            raise ValueError(f"the flow left the range of numbers: step {dt:g} is too long")
        on_frame()
    return torch.stack(frames, dim=1)
