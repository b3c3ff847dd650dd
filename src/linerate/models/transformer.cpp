// BERT uncased (Devlin et al. 2019): encoder and pooler, with 109,482,240 parameters (base) and
// 335,141,888 (large). The masked-language-model head is left out, as in the commonly published
// count. So without --classes the pooled features are the outputs, and with --classes a linear head
// follows. GPT-2 small (Radford et al. 2019): 124,439,808 parameters, the output tied to the token
// embedding.
#include "linerate/models/builder.hpp"
#include "linerate/models/families.hpp"

namespace linerate::models {
namespace {

/// Blocks, their width and heads.
struct TransformerSize {
  int layers;
  std::int64_t width, heads;
};
constexpr TransformerSize kSmall{12, 768, 12}, kLarge{24, 1024, 16};
constexpr double kDropout = 0.1;

/// Attention, then the feed-forward pair; each is added to its input and normalised after
/// (post-norm).
int bert_block(Builder& b, const std::string& at, const TransformerSize& size, int x) {
  const std::int64_t width = size.width;
  const std::string self = at + "attention.self.";
  const int q = b.linear(self + "query", x, width), k = b.linear(self + "key", x, width),
            v = b.linear(self + "value", x, width);
  int y = b.linear(at + "attention.output.dense",
                   b.attention({q, k, v}, size.heads, false, kDropout), width);
  x = b.layer_norm(at + "attention.output.LayerNorm", b.add(b.dropout(y, kDropout), x), 1e-12);
  y = b.gelu(b.linear(at + "intermediate.dense", x, 4 * width));
  y = b.dropout(b.linear(at + "output.dense", y, width), kDropout);
  return b.layer_norm(at + "output.LayerNorm", b.add(y, x), 1e-12);
}

/// The same with the normalisation before each half (pre-norm).
int gpt_block(Builder& b, const std::string& at, int x) {
  int y = b.linear(at + "attn.c_attn", b.layer_norm(at + "ln_1", x), 3 * kSmall.width);
  y = b.linear(at + "attn.c_proj", b.attention({y}, kSmall.heads, true, kDropout), kSmall.width);
  x = b.add(x, b.dropout(y, kDropout));
  y = b.gelu(b.linear(at + "mlp.c_fc", b.layer_norm(at + "ln_2", x), 4 * kSmall.width));
  return b.add(x, b.dropout(b.linear(at + "mlp.c_proj", y, kSmall.width), kDropout));
}

Description make_bert(const char* name, const TransformerSize& size, const Request& r) {
  static constexpr std::int64_t vocabulary = 30522;
  Builder b(name, r.input, vocabulary);
  const int words = b.embedding("embeddings.word_embeddings", b.input(), vocabulary, size.width);
  const int places =
      b.position_embedding("embeddings.position_embeddings", b.input(), 512, size.width);
  const int types =
      b.constant_embedding("embeddings.token_type_embeddings", b.input(), 2, size.width);
  int x = b.layer_norm("embeddings.LayerNorm", b.add(b.add(words, places), types), 1e-12);
  x = b.dropout(x, kDropout);
  for (int i = 0; i < size.layers; ++i)
    x = bert_block(b, "encoder.layer." + std::to_string(i) + ".", size, x);
  x = b.tanh(b.linear("pooler.dense", b.first_token(x), size.width));
  if (r.classes > 0) b.linear("classifier", b.dropout(x, kDropout), r.classes);
  return std::move(b).finish(Initialisation::normal_002);
}

}  // namespace

Description make_bert_base(const Request& r) { return make_bert("bert-base", kSmall, r); }
Description make_bert_large(const Request& r) { return make_bert("bert-large", kLarge, r); }

Description make_gpt_small(const Request& r) {
  static constexpr std::int64_t vocabulary = 50257;
  Builder b("gpt-small", r.input, vocabulary);
  const int words = b.embedding("wte", b.input(), vocabulary, kSmall.width);
  int x = b.add(words, b.position_embedding("wpe", b.input(), 1024, kSmall.width));
  x = b.dropout(x, kDropout);
  for (int i = 0; i < kSmall.layers; ++i) x = gpt_block(b, "h." + std::to_string(i) + ".", x);
  x = b.layer_norm("ln_f", x);
  if (r.classes > 0)
    b.linear("head", x, r.classes);
  else
    b.tied_linear(x, words);
  return std::move(b).finish(Initialisation::normal_002);
}

}  // namespace linerate::models
