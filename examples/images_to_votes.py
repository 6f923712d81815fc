"""From images to certified votes: how many training images can change before an answer does.

Run it with `python examples/images_to_votes.py`. The images are the 1,797 digits that come with
scikit-learn.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import agt


def main() -> None:
    """Train an ensemble of small members, and certify its vote."""
    digits = load_digits()
    images = digits.data / 16  # [n, 64], from 0 to 1: 16 is a constant of the image format
    training, queries, labels, true_labels = train_test_split(
        images, digits.target, test_size=400, random_state=0
    )

    # Each member is trained on its own part of the images, so one image can change one vote only.
    model = agt.fit(
        training,
        labels,
        certificate="votes",
        members=40,
        declared=agt.Declared(classes=list(range(10)), size=1_400, features=True, settings=True),
    )
    answers = model.certify(queries)  # for the data owner only

    accuracy = np.mean(answers.labels == true_labels)
    print(f"accuracy {accuracy:.3f}; median stable distance {np.median(answers.stable_distance):g}")
    print("edits  certified  certified and correct")
    for k in (0, 1, 2, 5, 10):
        certified = answers.stable_distance >= k
        correct = certified & (answers.labels == true_labels)
        print(f"{k:5}  {certified.mean():9.3f}  {correct.mean():21.3f}")


if __name__ == "__main__":
    main()
