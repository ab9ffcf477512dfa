"""Operations over named dimensions in the notation of einops: shapes, counts, gradients, the best order of several operands."""
