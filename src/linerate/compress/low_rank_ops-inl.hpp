// The functions of a back end's LowRank, as ops-inl.hpp has those of the back end: the factors of
// the matrices of a bucket, in a step.

/// Makes factors of these sizes, all zeros.
void begin(OfAll<compress::FactorSize> sizes);
/// take() copies kept numbers to the factor, and leave() copies the factor to the kept ones.
void take(compress::Side side, OfAll<KeptValues> kept);
void leave(compress::Side side, OfAll<KeptValues> kept);

/// Vectors get length 1. One of no length or no finite one is drawn from the tensor's stream.
void make_unit(compress::Side side, const Sending& tensors);
void orthonormalise(compress::Side side);
/// For a factor whose other side had vectors that vanished: its own vectors of these numbers
/// would stay zero for ever. They are drawn anew, so the next step tries other directions.
void redraw_vanished(compress::Side side);
/// As orthonormalise(), with a drawn direction in the place of each vector that vanished.
void orthonormalise_fresh(compress::Side side, const Sending& tensors);

/// Payloads: the pass's factor, scaled down by a power of two, headroom(). The other factor is
/// scaled up by it, so their product is the same.
void send(const Sending& tensors, const compress::FactorPass& pass);
void receive(compress::Side side, const Arriving& tensors, std::string_view method,
             compress::Taken taken);
/// Means: P^T Q.
void write_products(const Arriving& tensors);
