"""Theorem 1 by simulation: how many trajectories name the right skill? python -m
analysis.theorem"""

from analysis.theory.theorem import main

if __name__ == "__main__":
    main()
