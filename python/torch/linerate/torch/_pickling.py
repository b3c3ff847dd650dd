"""Pickling a model (torch.save, multiprocessing) reads weights past PyTorch's operators: updates
that wait are done before."""
import copyreg

import torch


def settle_before_pickling(settle):
    """`settle()` is called before a parameter is pickled."""
    def reduce(parameter):
        settle()
        return parameter.__reduce_ex__(2)

    # the way that is there for it; copy.deepcopy() does not come here
    copyreg.pickle(torch.nn.Parameter, reduce)
