// The functions of a back end of codecs. They stand in the class of each one, HostOps and
// TensorOps, which has the types that they name: included there. A codec is written once over these
// functions (docs/compression.md, "Codecs once").
//
// A call has one tensor on the host, and all tensors of a bucket on a device, which would else
// start a kernel for each tensor. OfAll<T> is what the codecs of these tensors have.
//
// A damaged payload is refused by an exception on the host. On a device it is noted in the call's
// first codec (TensorOps::Codec::damaged()).

/// Payloads: gradients * share in 16 bits.
static void narrow(const Sending& tensors, DType half, float share);
/// Payloads: v in 16 bits, cut off at +-limit. The rest of v stays in the residual. Returns
/// whether a v is beyond the limit.
static Flag narrow_and_keep(const Sending& tensors, DType half, const compress::HalfScale& scale);
/// Means: the payloads, which are sums of 2 bytes an element, times `by`.
static void widen(const Arriving& tensors, DType half, float by);

static Values gradients(const Sending& tensors);
static Values means(const Arriving& tensors);
/// kept.next = beta kept.now + (1 - beta) x; returns it.
static Values average(OfAll<KeptValues> kept, const Values& x, double beta);
/// As average(), but the answer goes to `rooms`, and kept.next stays as it is.
static Values averaged(OfAll<KeptValues> kept, OfAll<Room> rooms, const Values& x, double beta);
/// kept.next = values.
static void keep(OfAll<KeptValues> kept, const Values& values);

/// Payloads: v as f32. The residual becomes zero.
static void send(const Sending& tensors, const compress::DenseFormat&);
/// Means of such payloads, or of their sum.
static void receive(const Arriving& tensors, const compress::DenseFormat&);
/// Means of sums of f32; damaged if one is not finite.
static void read_finite_means(const Arriving& tensors, std::string_view method);
/// Payloads: a bit for each of `values`, in words.
static void send_signs(const Sending& tensors, const Values& values);
/// Means: 1, or -1 where more than half of the ranks said negative.
static void vote(const Arriving& tensors, std::string_view method);
/// Payloads: levels and signs of x plus the residual. The residual keeps the part that is not
/// sent.
static void send_scaled_signs(const Sending& tensors, const Values& x,
                              const compress::SignFormat& format);
static void send(const Sending& tensors, const compress::SignFormat& format) {
  send_scaled_signs(tensors, gradients(tensors), format);
}
/// Means of what send() writes with this format.
static void receive(const Arriving& tensors, const compress::SignFormat& format);

/// Payloads: codes of v on the grid of its bucket.
static void send(const Sending& tensors, const compress::GridFormat& format);
static void receive(const Arriving& tensors, const compress::GridFormat& format);
/// Payloads: powers of two next to v, at random.
static void send(const Sending& tensors, compress::PowerFormat format);
static void receive(const Arriving& tensors, compress::PowerFormat format);

/// v, and its k largest magnitudes, ties by lower index.
static Chosen choose_largest(const Sending& tensors, OfAll<Picking> rooms,
                             const compress::EntryFormat& format);
/// v, and about its k largest magnitudes, by halving what lies between two thresholds.
static Chosen choose_by_halving(const Sending& tensors, OfAll<Picking> rooms,
                                const compress::EntryFormat& format, int halvings);
/// v, and its magnitudes above a threshold that is fitted to their distribution.
static Chosen choose_by_fit(const Sending& tensors, OfAll<Picking> rooms,
                            OfAll<compress::Kept<compress::StageControl>> controls,
                            const compress::SidcoSettings& settings);
/// v, and its magnitudes of tau or more. If these are too many, all of the tensor is sent.
/// Without a tau it is the last step's, or the exact one if the last one picks far too few or too
/// many.
static Chosen choose_from(const Sending& tensors, OfAll<Picking> rooms,
                          const compress::EntryFormat& format, std::optional<float> tau,
                          OfAll<KeptNumber> taus);
/// u and r with this step's gradients (method/dgc.cpp).
static void accumulate(const Sending& tensors, OfAll<KeptValues> u, OfAll<KeptValues> r,
                       const compress::DgcSettings& settings);
/// About the largest magnitudes of what `kept` is after this step, by a sample of them.
static Chosen choose_by_sample(const Sending& tensors, OfAll<Picking> rooms,
                               const compress::EntryFormat& format, OfAll<KeptValues> kept);
static void clear(const Chosen& sent, OfAll<KeptValues> kept);
/// Means: with the momentum, which is kept.
static void add_momentum(const Arriving& tensors, OfAll<KeptValues> kept,
                         const compress::DenseMomentum& rule);

/// Payloads: the entries. What is sent leaves the residual.
static void send_entries(const Sending& tensors, const Chosen& chosen,
                         const compress::EntryFormat& format);
static void average_entries(const Arriving& tensors, const compress::EntryFormat& format);
/// Payloads: the values of v at drawn places, as one sum over the ranks.
static void send_drawn(const Sending& tensors, OfAll<Drawn> drawn, double density,
                       compress::Places places);
static void average_drawn(const Arriving& tensors, OfAll<Drawn> drawn, double density);
/// Payloads: two bits an element, for -tau, 0 and tau.
static void send(const Sending& tensors, const compress::TwoBitFormat& format);
static void receive(const Arriving& tensors, const compress::TwoBitFormat& format);

// For the two-phase exchange (coded_tensor.hpp).

static void send_chunks(const compress::ChunkCall& call, const Arrays& arrays,
                        const std::vector<Bytes>& rooms);
static Damage average_chunks(const compress::ChunkCall& call,
                             const std::vector<std::vector<Bytes>>& arrived, const Arrays& means);
static Arrays own_chunks(const std::vector<compress::TwoPhase*>& owners);
static void keep_owed(const std::vector<compress::TwoPhase*>& owners, const Arrays& arrays);
