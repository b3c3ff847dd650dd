// BERT base uncased (Devlin et al. 2019): encoder and pooler, 109,482,240 parameters; the
// masked-language-model head is left out, as in the commonly published count, so without --classes
// the 768 pooled features are the outputs, and with
// --classes a linear head follows. GPT-2 small (Radford et al. 2019): 124,439,808 parameters, the
// output tied to the token embedding.
#include "linerate/models/builder.hpp"
#include "linerate/models/families.hpp"

namespace linerate::models {
namespace {

constexpr std::int64_t kWidth = 768, kHeads = 12;
constexpr int kLayers = 12;
constexpr double kDropout = 0.1;

/// Attention, then the feed-forward pair; each is added to its input and normalised after
/// (post-norm).
int bert_block(Builder& b, const std::string& at, int x) {
  const std::string self = at + "attention.self.";
  const int q = b.linear(self + "query", x, kWidth), k = b.linear(self + "key", x, kWidth),
            v = b.linear(self + "value", x, kWidth);
  int y = b.linear(at + "attention.output.dense", b.attention({q, k, v}, kHeads, false, kDropout),
                   kWidth);
  x = b.layer_norm(at + "attention.output.LayerNorm", b.add(b.dropout(y, kDropout), x), 1e-12);
  y = b.gelu(b.linear(at + "intermediate.dense", x, 4 * kWidth));
  y = b.dropout(b.linear(at + "output.dense", y, kWidth), kDropout);
  return b.layer_norm(at + "output.LayerNorm", b.add(y, x), 1e-12);
}

/// The same with the normalisation before each half (pre-norm).
int gpt_block(Builder& b, const std::string& at, int x) {
  int y = b.linear(at + "attn.c_attn", b.layer_norm(at + "ln_1", x), 3 * kWidth);
  y = b.linear(at + "attn.c_proj", b.attention({y}, kHeads, true, kDropout), kWidth);
  x = b.add(x, b.dropout(y, kDropout));
  y = b.gelu(b.linear(at + "mlp.c_fc", b.layer_norm(at + "ln_2", x), 4 * kWidth));
  return b.add(x, b.dropout(b.linear(at + "mlp.c_proj", y, kWidth), kDropout));
}

}  // namespace

Description make_bert_base(const Request& r) {
  static constexpr std::int64_t vocabulary = 30522;
  Builder b("bert-base", r.input, vocabulary);
  const int words = b.embedding("embeddings.word_embeddings", b.input(), vocabulary, kWidth);
  const int places = b.position_embedding("embeddings.position_embeddings", b.input(), 512, kWidth);
  const int types = b.constant_embedding("embeddings.token_type_embeddings", b.input(), 2, kWidth);
  int x = b.layer_norm("embeddings.LayerNorm", b.add(b.add(words, places), types), 1e-12);
  x = b.dropout(x, kDropout);
  for (int i = 0; i < kLayers; ++i)
    x = bert_block(b, "encoder.layer." + std::to_string(i) + ".", x);
  x = b.tanh(b.linear("pooler.dense", b.first_token(x), kWidth));
  if (r.classes > 0) b.linear("classifier", b.dropout(x, kDropout), r.classes);
  return std::move(b).finish(Initialisation::normal_002);
}

Description make_gpt_small(const Request& r) {
  static constexpr std::int64_t vocabulary = 50257;
  Builder b("gpt-small", r.input, vocabulary);
  const int words = b.embedding("wte", b.input(), vocabulary, kWidth);
  int x = b.add(words, b.position_embedding("wpe", b.input(), 1024, kWidth));
  x = b.dropout(x, kDropout);
  for (int i = 0; i < kLayers; ++i) x = gpt_block(b, "h." + std::to_string(i) + ".", x);
  x = b.layer_norm("ln_f", x);
  if (r.classes > 0)
    b.linear("head", x, r.classes);
  else
    b.tied_linear(x, words);
  return std::move(b).finish(Initialisation::normal_002);
}

}  // namespace linerate::models
