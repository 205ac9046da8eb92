"""How much of the gradient conflict is built in? python -m analysis.structure"""

from analysis.theory.structure import main

if __name__ == "__main__":
    main()
