// The options of the backend spec, as worker.cpp has read them.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

namespace opdiff::onednn {

struct Settings {
  bool post_operations = false;
  dnnl::algorithm convolution = dnnl::algorithm::convolution_direct;
};

inline Settings& settings() {
  static Settings instance;
  return instance;
}

}  // namespace opdiff::onednn
