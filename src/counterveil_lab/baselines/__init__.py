"""Published methods to compare with, each in its authors' setting, all answering alike.

| baseline | method |
|---|---|
| `Dice` | DiCE (Mothilal 2020): the library dice-ml itself |
| `Cadex` | CADEX (Moore 2019): an additive input layer under a gradient mask |
| `Cchvae` | C-CHVAE (Pawelczyk 2020): growing shells in the latent space of a VAE |
| `Revise` | REVISE (Joshi 2019): gradient descent in the latent space of a VAE |
| `Nice` | NICE (Brughmans 2023): values of the nearest accepted training row, one by one |

None of them promises any privacy: they look at the training rows, at the gradient of f, or both.
"""

from counterveil_lab.baselines.base import Answers, Baseline
from counterveil_lab.baselines.cadex import Cadex
from counterveil_lab.baselines.dice import Dice
from counterveil_lab.baselines.latent import Cchvae, Revise, Vae, train_vae
from counterveil_lab.baselines.nice import Nice

__all__ = ["Answers", "Baseline", "Cadex", "Cchvae", "Dice", "Nice", "Revise", "Vae", "train_vae"]
