// The oneDNN worker: options, what the library is and can do, and graphs as Programs (program.h).
#include <omp.h>

#include <charconv>

#include "program.h"

namespace opdiff::onednn {
namespace {

using Options = std::map<std::string, std::string>;

const std::map<std::string, dnnl::cpu_isa>& instruction_sets() {
  using dnnl::cpu_isa;
  static const std::map<std::string, cpu_isa> names = {
      {"SSE41", cpu_isa::sse41},
      {"AVX", cpu_isa::avx},
      {"AVX2", cpu_isa::avx2},
      {"AVX2_VNNI", cpu_isa::avx2_vnni},
      {"AVX2_VNNI_2", cpu_isa::avx2_vnni_2},
      {"AVX512_CORE", cpu_isa::avx512_core},
      {"AVX512_CORE_VNNI", cpu_isa::avx512_core_vnni},
      {"AVX512_CORE_BF16", cpu_isa::avx512_core_bf16},
      {"AVX512_CORE_FP16", cpu_isa::avx512_core_fp16},
      {"AVX512_CORE_AMX", cpu_isa::avx512_core_amx},
      {"AVX512_CORE_AMX_FP16", cpu_isa::avx512_core_amx_fp16},
  };
  return names;
}

template <typename Choices>
auto choose(const std::string& option, const std::string& value, const Choices& choices) {
  const auto found = choices.find(value);
  if (found != choices.end()) return found->second;
  std::string known;
  for (const auto& [name, unused] : choices) known += (known.empty() ? "" : ", ") + name;
  throw std::invalid_argument("option " + option + "=" + value + " is not one of " + known);
}

void set_threads(const std::string& value) {
  int threads = 0;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), threads);
  if (problem != std::errc() || end != value.data() + value.size() || threads < 1 || threads > 1024)
    throw std::invalid_argument("option threads=" + value + " is not a number from 1 to 1024");
  omp_set_num_threads(threads);
}

void set_option(const std::string& name, const std::string& value, bool* post_operations) {
  using dnnl::fpmath_mode;
  static const std::map<std::string, fpmath_mode> modes = {{"strict", fpmath_mode::strict},
                                                           {"bf16", fpmath_mode::bf16},
                                                           {"f16", fpmath_mode::f16},
                                                           {"tf32", fpmath_mode::tf32},
                                                           {"any", fpmath_mode::any}};
  static const std::map<std::string, bool> switches = {{"0", false}, {"1", true}};
  if (name == "isa") {
    dnnl::set_max_cpu_isa(choose(name, value, instruction_sets()));
  } else if (name == "threads") {
    set_threads(value);
  } else if (name == "fpmath") {
    dnnl::set_default_fpmath_mode(choose(name, value, modes));
  } else if (name == "postops") {
    *post_operations = choose(name, value, switches);
  } else {
    throw std::invalid_argument("option " + name + " is not one of fpmath, isa, postops, threads");
  }
}

std::string instruction_set() {
  const auto effective = dnnl::get_effective_cpu_isa();
  for (const auto& [name, value] : instruction_sets()) {
    if (value == effective) return name;
  }
  return "unknown";
}

// Whether this library on this processor multiplies matrices of a dtype.
bool computes(const std::string& dtype) {
  const Desc matrix = dense(dtype, {8, 8});
  return static_cast<bool>(dnnl::matmul::primitive_desc(engine(), matrix, matrix, matrix, {}, true));
}

class Worker : public sdk::Backend {
 public:
  sdk::Hello hello(const Options& options) override {
    for (const auto& [name, value] : options) set_option(name, value, &post_operations_);
    const auto* version = dnnl_version();
    sdk::Hello hello;
    hello.name = "onednn";
    hello.version =
        std::to_string(version->major) + "." + std::to_string(version->minor) + "." + std::to_string(version->patch);
    hello.build = version->hash;
    hello.isa = instruction_set();
    hello.gradient = true;
    for (const auto& [op, unused] : binding_table()) {
      if (op.find('/') == std::string::npos) hello.operators.push_back(op);
    }
    for (const std::string dtype : {"float", "float16", "bfloat16"}) {
      if (computes(dtype)) hello.dtypes.push_back(dtype);
    }
    return hello;
  }

  std::unique_ptr<sdk::Model> prepare(sdk::Graph graph) override {
    return std::make_unique<Program>(std::move(graph), post_operations_);
  }

 private:
  bool post_operations_ = false;
};

}  // namespace
}  // namespace opdiff::onednn

int main() {
  opdiff::onednn::Worker worker;
  return opdiff::sdk::serve(worker);
}
