"""Theorem 1 by simulation: python -m analysis.theorem (the study is in analysis/theory)"""

from analysis.theory.theorem import main

if __name__ == "__main__":
    main()
