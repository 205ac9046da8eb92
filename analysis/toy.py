"""The paper's toy of AnInfoNCE, two Gaussians drawn apart: python -m analysis.toy"""

from analysis.theory.toy import main

if __name__ == "__main__":
    main()
